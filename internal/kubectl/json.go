// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

func writeJSON(w io.Writer, value any, indent string) error {
	e := json.NewEncoder(jsonWriter{w})
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return failed("writing", e.Encode(value))
}

// jsonWriter escapes characters that control a terminal, or that a terminal does not show. encoding/json escapes only
// the characters below U+0020. Each Write must end at a character boundary.
type jsonWriter struct{ io.Writer }

func (w jsonWriter) Write(p []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(p) {
		if !clip.Hidden(r) || r == '\n' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	if _, err := io.WriteString(w.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
