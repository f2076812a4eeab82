// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// bulkySize is the size of the data in each pod that the guard does not need, in bytes.
const bulkySize = 11_000

// memoryLimit is GOMEMLIMIT of the guard's Deployment.
const memoryLimit = "200MiB"

// watchList is the variable that makes client-go list instead of using streamed lists.
const watchList = "KUBE_FEATURE_WatchListClient"

// vmHWM is the peak resident memory of a process.
var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB`)

// benchGuardMemory measures the peak memory of a guard that starts in a cluster with a fifth of the pods, and with all,
// with streamed lists and with paged ones.
func benchGuardMemory(ctx context.Context, b *bench) (err error) {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := plane.Start(start, plane.Options{Components: []plane.Component{}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	guard, err := system.NewGuard(start, p, p.Management, system.GuardOptions{Bin: b.bin, Replicas: 1})
	if err != nil {
		return err
	}
	made := 0
	for _, pods := range []int{b.pods / 5, b.pods} {
		if err := guard.Terminate(guard.Replicas[0]); err != nil {
			return err
		}
		if err := makeBulkyPods(ctx, p.Management, made, pods); err != nil {
			return fmt.Errorf("creating pods: %w", err)
		}
		made = pods
		if err := b.addGuardMemory(ctx, guard, pods); err != nil {
			return err
		}
	}
	return errors.Join(os.Unsetenv(watchList), os.Unsetenv("GOMEMLIMIT"))
}

// addGuardMemory adds the peak memory of a guard that starts in a cluster with that many pods.
func (b *bench) addGuardMemory(ctx context.Context, guard *system.Guard, pods int) error {
	replica := guard.Replicas[0]
	for streams, how := range map[string]string{"true": "streamed", "false": "paged"} {
		if err := errors.Join(os.Setenv("GOMEMLIMIT", memoryLimit), os.Setenv(watchList, streams), guard.Start(ctx, replica), pause(ctx, b.span)); err != nil {
			return err
		}
		kB, err := status(replica.PID(), vmHWM)
		if err != nil {
			return err
		}
		b.add(one(fmt.Sprintf("peak memory of the guard, %d pods, lists are %s", pods, how), "MiB", 1, kB/1024))
		if err := guard.Terminate(replica); err != nil {
			return err
		}
	}
	return nil
}

// makeBulkyPods creates pods that no policy selects.
func makeBulkyPods(ctx context.Context, c *plane.Cluster, from, to int) error {
	errs := make([]error, evictors)
	var working sync.WaitGroup
	for i := range evictors {
		working.Go(func() {
			for n := from + i; n < to && errs[i] == nil; n += evictors {
				pod := benchPod("default", podName("bulky", n), nil)
				pod.Spec.NodeName = ""
				pod.Annotations = map[string]string{"example.com/config": strings.Repeat("x", bulkySize)}
				errs[i] = c.Client.Create(ctx, pod)
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// status reads a number from the status of a process.
func status(pid int, field *regexp.Regexp) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	found := field.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("process %d has no %s", pid, field)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
