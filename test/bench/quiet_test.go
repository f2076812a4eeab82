// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestWarningsDoNotHideTheFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = file
	if err := quiet(); err != nil {
		t.Fatal(err)
	}
	ctrl.Log.Info("a field is deprecated")
	klog.Warning("a field is deprecated")
	ctrl.Log.Error(errors.New("refused"), "it failed")
	klog.Flush()
	got, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(got), "deprecated") || !strings.Contains(string(got), "refused") {
		t.Errorf("%v: %q", err, got)
	}
}
