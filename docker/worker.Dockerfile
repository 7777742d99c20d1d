# The root of a node with runtime=docker. What is run there is not in it: the clone and its .venv are bound read-only at
# their own paths when a node starts, so the image outlives every change of them. `make docker-image` builds it.
#
# BASE is a Debian 12, whose Python the .venv links to; one that has Python and the fonts needs no network here.
ARG BASE=debian:12-slim
FROM ${BASE}
ARG PACKAGES="python3 python3-distutils iproute2 fonts-comfortaa fonts-dejavu-core fonts-dosis fonts-dustin \
fonts-freefont-ttf fonts-jura fonts-linuxlibertine fonts-oldstandard fonts-open-sans fonts-sil-gentium-basic"
RUN dpkg-query --show ${PACKAGES} >/dev/null 2>&1 || \
    { apt-get update && apt-get install -y --no-install-recommends ${PACKAGES} && rm -rf /var/lib/apt/lists/*; }
RUN mkdir -p /run/longhaul/store && chmod 711 /run/longhaul
ENTRYPOINT ["sleep", "infinity"]
