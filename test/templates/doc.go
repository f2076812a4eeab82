// SPDX-License-Identifier: Apache-2.0

// Package templates answers one question: does what an operations team starts from
// work as it is? clusterctl fills in every template; an API server that holds the
// real kinds takes all of it, and one of them is run.
package templates
