// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// backupPrefix begins the names of backups in a namespace. A namespace has no dot in its name.
func backupPrefix(namespace string) string { return "undo-delete." + namespace + "." }

const backupSuffix = ".yaml"

// path is the file in which the object is saved until the undo is done.
func (u *undo) path() string {
	return filepath.Join(u.backups, backupPrefix(u.namespace)+u.name+backupSuffix)
}

// saved returns the names of the ScheduledMachines of the Cluster that have a backup.
func (u *undoOptions) saved(namespace string) ([]string, error) {
	files, err := os.ReadDir(u.backups)
	if err != nil {
		return nil, failed("looking for backups", err)
	}
	var names []string
	for _, f := range files {
		name, ours := strings.CutPrefix(f.Name(), backupPrefix(namespace))
		name, yaml := strings.CutSuffix(name, backupSuffix)
		if !ours || !yaml {
			continue
		}
		object, err := readBackup(filepath.Join(u.backups, f.Name()), namespace, name)
		if err != nil {
			return nil, err
		}
		if clusterName, _, _ := unstructured.NestedString(object.Object, "spec", "clusterName"); clusterName == u.clusterName {
			names = append(names, name)
		}
	}
	return names, nil
}

// save writes the backup: the object as it is created again. The file is complete or absent, also after a crash.
func (u *undo) save() error {
	text, err := yaml.Marshal(manifestOf(u.stored).Object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", u.name, err)
	}
	f, err := os.CreateTemp(u.backups, ".undo-delete-*")
	if err != nil {
		return failed("saving "+u.name, err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), u.path())
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return failed("saving "+u.name, err)
}

// forgetBackup removes the backup, if there is one.
func (u *undo) forgetBackup() error {
	err := os.Remove(u.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failed("removing the backup", err)
}

// continueFromBackup creates an absent object again from its backup: undo-delete was interrupted, or the deletion could
// not be undone.
func (u *undo) continueFromBackup(ctx context.Context, absent error) error {
	object, err := readBackup(u.path(), u.namespace, u.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failed(u.name, fmt.Errorf("%w in namespace %s, and there is no backup %s: for another namespace, add -n NAMESPACE; if it is gone, create it again from its manifest", absent, u.namespace, u.path()))
	case err != nil:
		return err
	case u.dryRun:
		return u.printf("it is gone, and can be created again from %s.", u.path())
	}
	u.stored, u.m = object, &v1alpha1.ScheduledMachine{}
	if err := u.restore(ctx); err != nil {
		return u.refused(err)
	}
	return u.printf("created again from the backup. If its Machine still runs, it is kept.")
}

func readBackup(path, namespace, name string) (*unstructured.Unstructured, error) {
	text, err := readFile(path, nil)
	if err != nil {
		return nil, failed("reading the backup", err)
	}
	object := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = object.UnmarshalJSON(data)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the backup %s: %w", path, err)
	}
	if object.GetKind() != kind || object.GetNamespace() != namespace || object.GetName() != name {
		return nil, fmt.Errorf("%s is not the backup of %s %s in namespace %s", path, kind, name, namespace)
	}
	return object, nil
}

// manifestOf returns the object as it is created again: without the fields that the API server sets, the finalizers,
// and the pause of undo-delete.
func manifestOf(stored *unstructured.Unstructured) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{"apiVersion": stored.GetAPIVersion(), "kind": stored.GetKind()}}
	if spec, ok := stored.Object["spec"]; ok {
		m.Object["spec"] = spec
	}
	m.SetNamespace(stored.GetNamespace())
	m.SetName(stored.GetName())
	m.SetLabels(stored.GetLabels())
	m.SetOwnerReferences(stored.GetOwnerReferences())
	annotations := stored.GetAnnotations() // a copy
	if annotations[clusterv1.PausedAnnotation] == pausedBy {
		delete(annotations, clusterv1.PausedAnnotation)
	}
	m.SetAnnotations(annotations)
	return m
}
