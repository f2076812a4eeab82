// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"time"
)

// shortly is long enough for a wrong action of a manager to show.
const shortly = time.Second

// slug is a test's name as part of an object's name.
func slug(name string) string { return strings.ToLower(name) }

// removed is list without item.
func removed(list []string, item string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
}
