# The two commands of the README on a machine that has nothing: docker build -t redditbias . && docker run --rm -it redditbias
FROM python:3.11-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
# Without it pip brings gigabytes of CUDA libraries; for a GPU build with --build-arg INDEX=
ARG INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_EXTRA_INDEX_URL=${INDEX}
WORKDIR /redditbias_repro
COPY . .
RUN make /redditbias_repro/.venv/.ready
CMD ["bash", "-c", "make reproduce && make test"]
