// SPDX-License-Identifier: Apache-2.0

// Package templates tests the templates of docs/install.md. clusterctl fills in every template; an API server with the
// real kinds must accept all of them, and one of them runs.
package templates
