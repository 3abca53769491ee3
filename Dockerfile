# The one image of all of the store's processes; which of them a container is, its command says.
# compose.yaml names the commands, as the Procfile does.

# Any other Debian with Python 3.11 or newer as `python`, for who cannot pull this one.
ARG BASE=docker.io/library/python:3.11.14-slim-bookworm

FROM ${BASE} AS libraries
COPY requirements.txt /tmp/requirements.txt
RUN python -m venv /opt/store \
 && /opt/store/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --requirement /tmp/requirements.txt \
 && /opt/store/bin/python -m pip uninstall --yes pip setuptools

FROM ${BASE}
# Nothing is installed into a running image, so nothing that installs is left; and no program runs
# as root because of its mode.
RUN if python -m pip --version >/dev/null 2>&1; then \
        python -m pip uninstall --yes --root-user-action ignore pip setuptools wheel; fi \
 && rm -rf /usr/share/python-wheels "$(python -c 'import ensurepip; print(*ensurepip.__path__)')" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && groupadd --gid 10001 store \
 && useradd --uid 10001 --gid store --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin store \
 && install --directory --owner store --group store --mode 0700 \
        /var/lib/store /var/lib/store/secrets
COPY --from=libraries /opt/store /opt/store
# .dockerignore lets through what runs, and nothing else.
COPY . /srv/store
ENV PATH=/opt/store/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    STORE_HOME=/var/lib/store
# Compiled once, here: the store cannot write into its own code.
RUN python -m compileall -q /srv/store
WORKDIR /srv/store
USER 10001:10001
CMD ["python", "-m", "ops", "--help"]
