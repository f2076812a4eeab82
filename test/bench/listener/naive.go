// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// naive detects processes in the simplest way.
type naive struct {
	commands, substrings []string
	counts               *metrics.Set
}

// listen uses the library's Receive without a filter, and reads whole files.
func (n naive) listen(ctx context.Context) error {
	conn, err := netlink.Dial(unix.NETLINK_CONNECTOR, &netlink.Config{Groups: 1})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// A cn_msg for the proc connector with the request to listen, see <linux/cn_proc.h>: idx, val, seq, ack, length,
	// and the request.
	listen := make([]byte, 0, 24)
	for _, v := range []uint32{1, 1, 0, 0, 4, 1} {
		listen = binary.NativeEndian.AppendUint32(listen, v)
	}
	if _, err := conn.Send(netlink.Message{Header: netlink.Header{Type: netlink.Done}, Data: listen}); err != nil {
		return err
	}
	n.counts.SetDetector("netlink")
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	for ctx.Err() == nil {
		messages, err := conn.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue // events were lost
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("receiving: %w", err)
		}
		for _, m := range messages {
			n.hear(m.Data)
		}
	}
	return nil
}

// hear handles one message: a cn_msg of 20 bytes and a proc_event. It checks the process if it has executed a program.
func (n naive) hear(data []byte) {
	const what, timestamp, tgid, exec = 20, 28, 40, 2
	if len(data) < tgid+4 || binary.NativeEndian.Uint32(data[what:]) != exec {
		return
	}
	n.counts.Execs.Add(1)
	pid := int(binary.NativeEndian.Uint32(data[tgid:]))
	if n.look(strconv.Itoa(pid)) {
		found(pid, time.Duration(now())-time.Duration(binary.NativeEndian.Uint64(data[timestamp:]))) //nolint:gosec // both are since boot
	}
}

// poll lists all processes every interval, and reads all of their files.
func (n naive) poll(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	n.counts.SetDetector("poll")
	n.counts.PollInterval.Store(int64(interval))
	seen := map[int]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		n.counts.Polls.Add(1)
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err == nil && n.look(e.Name()) && !seen[pid] {
				seen[pid] = true
				found(pid, 0)
			}
		}
	}
}

func (n naive) look(pid string) bool {
	comm, err := os.ReadFile("/proc/" + pid + "/comm") //nolint:gosec // of the kernel
	if err != nil {
		return false
	}
	argv, err := os.ReadFile("/proc/" + pid + "/cmdline") //nolint:gosec // of the kernel
	return err == nil && matches(string(comm), string(argv), n.commands, n.substrings)
}
