// SPDX-License-Identifier: Apache-2.0

// Package fivespot is the root of 5-Spot for Cluster API. It holds no code:
// start reading at api/v1alpha1, then controllers.
package fivespot
