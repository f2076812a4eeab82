// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// cluster reads and writes objects of one cluster. Each call is one request; there is no API discovery.
type cluster struct {
	client.WithWatch
	Options

	// namespace is the one of the command line, empty for all namespaces.
	namespace string
	// chosen reports that the command line names the namespace.
	chosen bool
}

// onCluster returns a RunE that calls run with a client for the cluster that the flags select.
func onCluster(o Options, config clientcmd.ClientConfig, run func(ctx context.Context, c *cluster, names []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, names []string) error {
		c, err := connect(o, config)
		if err != nil {
			return err
		}
		if all, _ := cmd.Flags().GetBool("all-namespaces"); all { // false if the command does not have the flag
			c.namespace = ""
		}
		return run(cmd.Context(), c, names)
	}
}

// connect builds a client for the cluster that the flags select. It sends no request.
func connect(o Options, config clientcmd.ClientConfig) (*cluster, error) {
	namespace, chosen, err := config.Namespace()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	c, err := config.ClientConfig()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	c.QPS, c.Burst = 50, 300 // as kubectl: with client-go's defaults, undo-delete of 100 machines takes minutes
	// As kubectl. By default, controller-runtime sends warnings to its own logger, which is not set.
	c.WarningHandler = rest.WarningLogger{}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	direct, err := client.NewWithWatch(c, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	return &cluster{direct, o, namespace, chosen}, nil
}

// mapper returns the resources of the kinds that this program uses.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	for _, namespaced := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(kind), v1alpha1.GroupVersion.WithKind("ReclaimedMachine"),
		clusterv1.GroupVersion.WithKind("Cluster"), clusterv1.GroupVersion.WithKind("Machine"), corev1.SchemeGroupVersion.WithKind("Event"),
	} {
		m.Add(namespaced, meta.RESTScopeNamespace)
	}
	return m
}

// key returns the key of an object in the namespace of the command line.
func (c *cluster) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: c.namespace, Name: name}
}

// inNamespace returns the end of a sentence about the namespace of the command line, or about all.
func (c *cluster) inNamespace() string {
	if c.namespace == "" {
		return ""
	}
	return " in namespace " + c.namespace
}

// get returns the objects with those names. It joins one error per object that it cannot read.
func (c *cluster) get(ctx context.Context, names []string) ([]v1alpha1.ScheduledMachine, error) {
	objects := make([]v1alpha1.ScheduledMachine, len(names))
	var errs []error
	for i, name := range names {
		err := c.Get(ctx, c.key(name), &objects[i])
		if (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) && !c.chosen {
			err = c.findInOtherNamespaces(ctx, name, &objects[i], err)
		}
		errs = append(errs, failed("reading "+name, err))
	}
	return objects, errors.Join(errs...)
}

// findInOtherNamespaces searches all namespaces for the object. get calls it only if the command line names no
// namespace. It succeeds if the person may list all namespaces and exactly one object has the name.
func (c *cluster) findInOtherNamespaces(ctx context.Context, name string, into *v1alpha1.ScheduledMachine, readErr error) error {
	var all v1alpha1.ScheduledMachineList
	if err := c.List(ctx, &all, client.MatchingFields{metav1.ObjectNameField: name}); err == nil && len(all.Items) == 1 && all.Items[0].Name == name {
		*into = all.Items[0]
		return nil
	}
	if apierrors.IsForbidden(readErr) { // The API server's error names the namespace already.
		return fmt.Errorf("%w: for another namespace, add -n NAMESPACE", readErr)
	}
	return c.absent(readErr)
}

// absent returns the error for an object that the namespace does not have.
func (c *cluster) absent(err error) error {
	return fmt.Errorf("%w in namespace %s: for another, add -n NAMESPACE", err, c.namespace)
}

// list returns the objects of the namespace, or of all namespaces.
func (c *cluster) list(ctx context.Context) ([]v1alpha1.ScheduledMachine, error) {
	var objects v1alpha1.ScheduledMachineList
	err := c.List(ctx, &objects, client.InNamespace(c.namespace))
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; if you may see only some machines, name one: kubectl 5spot status NAME", err)
	}
	return objects.Items, failed("listing scheduledmachines", err)
}

// metadata lists the metadata of objects. The API server sends nothing else.
func (c *cluster) metadata(ctx context.Context, kind schema.GroupVersionKind, opts ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := c.List(ctx, list, opts...)
	return list.Items, err
}

// change reads one object and writes what edit changes in it. On a conflict it reads the object again and calls edit
// again. It returns the object as it then is in the cluster.
func (c *cluster) change(ctx context.Context, name string, edit func(*v1alpha1.ScheduledMachine) error) (*v1alpha1.ScheduledMachine, error) {
	var m *v1alpha1.ScheduledMachine
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		objects, err := c.get(ctx, []string{name})
		if err != nil {
			return err
		}
		if m = &objects[0]; m.Namespace != c.namespace {
			return fmt.Errorf("%s is in namespace %s, which the command line does not name: add -n %s", name, m.Namespace, m.Namespace)
		}
		before := m.DeepCopy()
		if err := edit(m); err != nil || equality.Semantic.DeepEqual(before, m) {
			return err
		}
		return c.patch(ctx, m, before)
	})
	if apierrors.IsConflict(err) {
		err = failed("changing "+name, err)
	}
	return m, err
}

// patch sends the changes of m since before. It fails with a conflict if before is not the newest version. It returns a
// conflict unwrapped, so that the caller can retry.
func (c *cluster) patch(ctx context.Context, m, before *v1alpha1.ScheduledMachine) error {
	err := c.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(writer.Plugin))
	if err != nil && !apierrors.IsConflict(err) {
		return failed("changing "+m.Name, err)
	}
	return err
}

// reclaimedMachine returns the ReclaimedMachine with that name. It returns nil if there is none, or if the person may
// not read it.
func (c *cluster) reclaimedMachine(ctx context.Context, name string) (*v1alpha1.ReclaimedMachine, error) {
	reclaimed := &v1alpha1.ReclaimedMachine{}
	err := c.Get(ctx, c.key(name), reclaimed)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	return reclaimed, failed("reading ReclaimedMachine "+name, err)
}

// reconnect is the pause before the next watch, for a server that ends each watch at once.
const reconnect = time.Second

// follow calls seen with each version of an object, and with nil once the object is gone. It returns when seen is done
// or fails, when the first read fails, or when a later request is denied. It restarts a watch that ends.
func (c *cluster) follow(ctx context.Context, name string, seen func(*v1alpha1.ScheduledMachine) (done bool, err error)) error {
	reached := false
	for {
		m := &v1alpha1.ScheduledMachine{}
		err := c.Get(ctx, c.key(name), m)
		if apierrors.IsNotFound(err) {
			m, err = nil, nil
		}
		switch {
		case err == nil:
			reached = true
			if done, err := seen(m); done || err != nil {
				return err
			}
			if done, err := c.watch(ctx, m, seen); done || err != nil {
				return err
			}
		case !reached, isDenied(err):
			return failed("reading "+name, err)
		}
		again := time.NewTimer(reconnect)
		select {
		case <-ctx.Done():
			return failed("watching "+name, ctx.Err())
		case <-again.C:
		}
	}
}

// isDenied reports whether the API server denied a request to this user.
func isDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// watch runs one watch for follow. It returns false if the server ends the watch or does not answer.
func (c *cluster) watch(ctx context.Context, m *v1alpha1.ScheduledMachine, seen func(*v1alpha1.ScheduledMachine) (bool, error)) (bool, error) {
	w, err := c.Watch(ctx, &v1alpha1.ScheduledMachineList{}, client.InNamespace(m.Namespace), client.MatchingFields{metav1.ObjectNameField: m.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: m.ResourceVersion}})
	switch {
	case isDenied(err):
		return false, failed("watching "+m.Name, err)
	case err != nil:
		return false, nil // For example, the API server restarts: follow reads the object again.
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		newer, ok := event.Object.(*v1alpha1.ScheduledMachine)
		if !ok { // an error event, for example for a resource version that is too old
			return false, nil
		}
		if event.Type == watch.Deleted {
			newer = nil
		}
		if done, err := seen(newer); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
