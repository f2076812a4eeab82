// SPDX-License-Identifier: Apache-2.0

// Command plane-runc is runc for real nodes on control groups of version 2. It
// leaves out limits whose controller the node does not have, where runc itself
// would refuse the container, and then becomes runc.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// controllersFile lists the controllers that the root of the node's control groups has.
const controllersFile = "/sys/fs/cgroup/cgroup.controllers"

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "plane-runc:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	if bundle, ok := bundleOf(args); ok {
		if err := rewrite(filepath.Join(bundle, "config.json")); err != nil {
			return fmt.Errorf("leaving out limits: %w", err)
		}
	}
	return syscall.Exec(runc, args, os.Environ()) //nolint:gosec // the arguments are runc's own
}

// bundleOf returns the directory of the container that a command line of runc makes,
// in the form that containerd uses.
func bundleOf(args []string) (string, bool) {
	create := slices.Index(args, "create")
	bundle := slices.Index(args, "--bundle")
	if create < 0 || bundle < create || bundle+1 == len(args) {
		return "", false
	}
	return args[bundle+1], true
}

// rewrite leaves out limits in a container's configuration.
func rewrite(config string) error {
	controllers, err := os.ReadFile(controllersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return err
	}
	before, err := os.ReadFile(config) //nolint:gosec // containerd's own file
	if err != nil {
		return err
	}
	after, err := withoutLimits(before, string(controllers))
	if err != nil {
		return fmt.Errorf("%s: %w", config, err)
	}
	return os.WriteFile(config, after, 0o600) //nolint:gosec // containerd's own file
}
