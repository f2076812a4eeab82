// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"
	"unicode/utf8"
)

// terminal is the width that text output fits into, as far as names allow. -o wide has no limit.
const terminal = 80

// gap is the space between two columns.
const gap = 3

// fitted is a table whose last column is cut, so that a line has at most width characters.
func fitted(rows [][]string, width int) string {
	used := 0
	for column := range len(rows[0]) - 1 {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[column]))
		}
		used += widest + gap
	}
	const least = 20 // A shorter last column would be useless: the names are then too long.
	lines := make([]string, len(rows))
	for i, row := range rows {
		last := len(row) - 1
		lines[i] = strings.Join(append(row[:last:last], short(row[last], max(least, width-used))), "\t")
	}
	return columns(lines...)
}

// wrapped breaks text into lines of at most terminal characters. The first begins with two spaces, the others with
// four. A longer word gets a line of its own.
func wrapped(text string) string {
	const indent = "  "
	var b strings.Builder
	line := indent
	words := strings.Fields(text)
	for i, word := range words {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > terminal:
			b.WriteString(line + "\n")
			line = indent + "  " + word
		default:
			line += " " + word
		}
	}
	return b.String() + line + "\n"
}
