// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hold

import "errors"

func openTree(string) (tree, error) { return nil, errors.New("the host does not run Linux") }
