// SPDX-License-Identifier: Apache-2.0

// Package packaging tests what is installed in a management cluster: the
// components that config/default builds.
package packaging
