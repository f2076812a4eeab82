// SPDX-License-Identifier: Apache-2.0

// Command plane-runc starts containers on machines where root lacks permissions that runc needs. It edits a container's
// configuration and then executes runc. On control groups of version 2 it removes limits without a controller, and
// everywhere it removes a capability that root lacks. If nothing is missing, it changes nothing.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	err := prepare(os.Args[1:])
	if err == nil {
		err = become(os.Args[1:])
	}
	fmt.Fprintln(os.Stderr, "plane-runc:", err)
	os.Exit(1) //nolint:forbidigo // this is main
}

// become replaces this process with the runc of PATH. This program may be in PATH under the same name.
func become(args []string) error {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) { //nolint:forbidigo // as exec.LookPath does
		path, err := exec.LookPath(filepath.Join(dir, "runc"))
		if err != nil {
			continue
		}
		if file, err := os.Stat(path); err == nil && !os.SameFile(self, file) { //nolint:gosec // PATH is the administrator's
			return syscall.Exec(path, append([]string{"runc"}, args...), os.Environ()) //nolint:gosec // the arguments are runc's own
		}
	}
	return errors.New("no directory of PATH has runc")
}

// prepare edits the configuration that runc is about to read.
func prepare(args []string) error {
	here, err := observe()
	if err != nil {
		return err
	}
	call := parse(args)
	switch {
	case call.creates:
		return edit(filepath.Join(call.bundle, "config.json"), here.trim)
	case call.process != "":
		return edit(call.process, here.trimProcess)
	case call.updates && !here.has("memory"):
		os.Exit(0) //nolint:forbidigo // a limit that cannot be has nothing to be changed to
	}
	return nil
}

// A call is the parsed part of runc's arguments.
type call struct {
	creates, updates bool
	bundle, process  string
}

// parse reads arguments as runc does: --flag value, or --flag=value.
func parse(args []string) call {
	c, flag := call{bundle: "."}, ""
	for _, a := range args {
		name, value, joined := strings.Cut(a, "=")
		if !joined {
			name, value = flag, a
		}
		switch strings.TrimLeft(name, "-") {
		case "bundle", "b":
			c.bundle = value
		case "process", "p":
			c.process = value
		}
		c.creates = c.creates || a == "create" || a == "run"
		c.updates = c.updates || a == "update"
		flag = ""
		if strings.HasPrefix(a, "-") && !joined {
			flag = a
		}
	}
	return c
}

// edit changes a JSON file in place. Numbers keep every digit.
func edit(path string, change func(map[string]any)) error {
	text, err := os.ReadFile(path) //nolint:gosec // runc is about to read it
	if errors.Is(err, fs.ErrNotExist) {
		return nil // runc reports this error better
	}
	if err != nil {
		return err
	}
	var config map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&config); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	change(config)
	text, err = json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
