# grls serve in a container: docs/guides/serve.md, "In a container".
#
# TORCH_INDEX: an index of PyTorch builds, for its small CPU build: the address behind --index-url in the line that
# the selector of PyTorch's installation page shows for Pip and CPU. Empty: PyPI's build, which takes a GPU where the
# container gets one, and the CPU otherwise. EXTRAS: the extras of grls. Files are those of requirements.hashes: uv
# compares the hashes of a constraint; TORCH_INDEX has builds of its own, without a hash there.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY grls ./grls
COPY data_prep ./data_prep
COPY configs ./configs
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS packages
ARG TORCH_INDEX=
ARG EXTRAS=models,serve,mcp
COPY requirements.lock requirements.hashes /build/
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/grls && python -m venv /opt/uv && /opt/uv/bin/python -m pip install --no-cache-dir uv==0.13.9
# torch first and alone: only torch comes from the index of PyTorch builds, whose hashes are not those of PyPI.
RUN /opt/uv/bin/uv pip install --no-cache --python /opt/grls/bin/python --constraint /build/requirements.$([ -n "$TORCH_INDEX" ] && echo lock || echo hashes) ${TORCH_INDEX:+--index-url $TORCH_INDEX} torch
RUN /opt/uv/bin/uv pip install --no-cache --python /opt/grls/bin/python --constraint /build/requirements.hashes "$(echo /wheels/grls-*.whl)[$EXTRAS]"

FROM python:${PYTHON}-slim AS server
RUN useradd --system --uid 10001 --no-create-home grls
COPY --from=packages /opt/grls /opt/grls
ENV PATH=/opt/grls/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 HF_HOME=/tmp/huggingface
WORKDIR /retrievers
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["grls", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/retrievers/default"]
