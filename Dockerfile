# Builds an image of metta_fast for the CPU, with the same set-up as on any machine:
#
#     docker build -t metta_fast .
#     docker run --rm -it --shm-size=2g metta_fast
#
# The commands are those of README; tests/test_dockerfile.py checks this.
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home trainer
WORKDIR /home/trainer/metta_fast
RUN chown trainer:trainer /home/trainer/metta_fast
USER trainer

COPY --chown=trainer:trainer . .
RUN ./run_ultra_fast.sh --setup-only

# To keep runs when the container is removed: -v metta_fast_runs:/home/trainer/metta_fast/runs
RUN mkdir -p runs

CMD ["./run_ultra_fast.sh"]
