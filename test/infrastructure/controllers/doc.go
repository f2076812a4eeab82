// SPDX-License-Identifier: Apache-2.0

// Package controllers answers one question: what does Cluster API's contract ask
// of an infrastructure, a bootstrap and a control plane provider, and when is it
// done? Where Nodes come from is the business of a Backend.
package controllers
