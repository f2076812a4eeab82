// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// longestLine bounds what is kept of a file at a time. The lines that a manager writes are
// shorter than a thousandth of it, unless people write that much into a request.
const longestLine = 1 << 20

var errLongLine = fmt.Errorf("longer than %d bytes", longestLine)

// readLines calls each with the lines of some files, in their order; "-" is in. where is file
// and number of a line, and err says that it is too long to be read. Empty lines are passed
// over. What stops a file does not stop the next, but what each returns stops everything.
func readLines(paths []string, in io.Reader, each func(where string, line []byte, err error) error) error {
	var errs []error
	for _, path := range paths {
		err := readFileLines(path, in, each)
		if errors.As(err, new(failure)) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func readFileLines(path string, in io.Reader, each func(string, []byte, error) error) error {
	if path == "-" {
		return scan("standard input", in, each)
	}
	f, err := os.Open(path) //nolint:gosec // the user says which file; the error, what it was doing
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	return scan(path, f, each)
}

// scan reads one file. The last line need not end: a manager may be writing it.
func scan(name string, in io.Reader, each func(string, []byte, error) error) error {
	r := bufio.NewReaderSize(in, longestLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		var tooLong error
		for errors.Is(err, bufio.ErrBufferFull) {
			line, tooLong = nil, errLongLine
			_, err = r.ReadSlice('\n')
		}
		if line = bytes.TrimSpace(line); len(line) > 0 || tooLong != nil {
			if err := each(fmt.Sprintf("%s, line %d", name, n), line, tooLong); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
}
