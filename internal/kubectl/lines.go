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

// maxLine bounds the memory for one line, in bytes. A manager's lines are shorter than a thousandth of it, unless a
// request has a very long reason.
const maxLine = 1 << 20

// readLines calls each with every non-empty line of the files, in their order; "-" is in. where is the file and the
// line number. err reports that the line is too long, and line is then nil. A file that cannot be read does not stop
// the next one. A failure that each returns stops everything.
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
	defer func() { _ = f.Close() }() // opened for reading only
	return scan(path, f, each)
}

// scan reads one file. The last line may have no line break: a manager may still be writing it.
func scan(name string, in io.Reader, each func(string, []byte, error) error) error {
	r := bufio.NewReaderSize(in, maxLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		var tooLong error
		for errors.Is(err, bufio.ErrBufferFull) {
			line, tooLong = nil, fmt.Errorf("longer than %d bytes", maxLine)
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
