"""Records one episode and shows it in the terminal, as an HTML page or as a video; imported by cli.py and run/.

    metta-fast replay runs/<name> --terminal

    inference/players.py ─► record.py ─► Recording ─┬─► html.py, page/               one self-contained file
                               ▲                    ├─► views.py ─┬─► terminal.py    characters and colours
                   factory.make_recorder            │             └─► video.py       mp4, gif
                                                    └─► contracts/recording.py       JSON (format: docs/replay.md)

Actions, rewards, ends and statistics are recorded for every environment. A recorder adds the look of its world. An
`EnvFactory` may offer one:

    def make_recorder(self, batch: EnvBatch) -> Recorder     # contracts/recording.py; `batch` holds one environment

    kind     recorder                                          page             terminal, video
    grid     envs/grid/recorder.py                             page/grid.js     envs/grid/text.py, envs/grid/picture.py
    frames   envs/frame_recorder.FrameRecorder(render): images page/frames.js   the images, in the video
    none     without make_recorder                             page/charts.js   numbers only

For environments that can be rendered, it is enough to return `FrameRecorder(lambda: <RGB uint8 [height, width, 3]>)`;
envs/python_env.py does so for Gymnasium's `render_mode="rgb_array"`. A new kind of world needs functions in views.py
and a class in page/.

Place in the flow: cli.py calls `run_replay_command`; run/trainer.py calls training.py every `run.replay_interval`
epochs.
"""
