# SPDX-License-Identifier: Apache-2.0
# Two static programs and nothing else: no shell, no libraries, no time zones (they
# are linked in). `make docker-build` builds the programs first.
FROM scratch
COPY bin/manager bin/reclaim-agent /
USER 65532:65532
ENTRYPOINT ["/manager"]
