"""Replays: one episode recorded, then shown in the terminal, as an HTML page, as a video.

    metta-fast replay runs/<name> --terminal

    play.py ─ watch ─► record.py ─► Recording ─┬─► html.py, page/               one file that plays by itself
                          ▲                    ├─► views.py ─┬─► terminal.py    characters and colours
              factory.make_recorder            │             └─► video.py       mp4, gif
                                               └─► recording.py                 JSON, its form in docs/replay.md

How an environment comes to be seen. Actions, rewards, ends and statistics are recorded of every environment. What
its world looks like is told by a recorder: an `EnvFactory` may offer

    def make_recorder(self, batch: EnvBatch) -> Recorder     # record.Recorder; `batch` holds one environment

    kind     recorder                                 page             terminal, video
    grid     envs/grid/recorder.py                    page/grid.js     envs/grid/text.py, envs/grid/picture.py
    frames   frames.FrameRecorder(render): images     page/frames.js   the images, in the video
    none     without make_recorder                    figures alone    figures alone

A factory whose environments can be rendered returns `FrameRecorder(lambda: <RGB uint8 [height, width, 3]>)` and is
done; so does envs/python_env.py for Gymnasium's `render_mode="rgb_array"`. A new kind of world has its functions in
views.py and a class in page/.

Place in the flow: cli.py calls `run_replay_command`; trainer.py calls training.py every `run.replay_interval` epochs.
"""
