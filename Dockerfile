# SPDX-License-Identifier: Apache-2.0
# Three static programs and nothing else: no shell, no libraries, no time zones (they
# are linked in). `make docker-build` builds the programs first, for every platform.
FROM scratch
ARG TARGETPLATFORM
COPY ${TARGETPLATFORM}/manager ${TARGETPLATFORM}/reclaim-agent ${TARGETPLATFORM}/eviction-guard /
USER 65532:65532
ENTRYPOINT ["/manager"]
