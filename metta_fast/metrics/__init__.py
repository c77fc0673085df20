"""Writes and shows a run's metrics: files, TensorBoard, W&B, train.log, dashboard; imported by run/ and watch/."""
