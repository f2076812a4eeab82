// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

type undoOptions struct {
	clusterName, backups string
	dryRun               bool
	timeout              span
}

func newUndoDelete(o Options, config clientcmd.ClientConfig) *cobra.Command {
	u := undoOptions{timeout: span(time.Minute)}
	cmd := &cobra.Command{
		Use:   "undo-delete NAME...",
		Short: "Undo the deletion of ScheduledMachines whose machines still run",
		Long: `Undo the deletion of ScheduledMachines whose machines still run: create each one
again, with its spec, labels and annotations. Its Machine stays, and is not drained.

It cannot be undone once the Machine is being deleted. To gain time, hold the
departures of the Cluster first.

For about a second the object is paused and then absent: not even its owner's
request is served meanwhile. Before anything is removed, the object is saved in a
file; the file is removed at the end. After an interruption or an error, run the
same command again in the same directory: it continues.`,
		Example: `  kubectl 5spot hold-departures lab
  kubectl 5spot undo-delete --cluster lab
  kubectl 5spot undo-delete office-hours --dry-run`,
		ValidArgsFunction: completeNames(config),
		Args: func(_ *cobra.Command, names []string) error {
			if (u.clusterName != "") == (len(names) > 0) {
				return errors.New("give the names of ScheduledMachines, or --cluster for all of a Cluster that are being deleted, not both")
			}
			return nil
		},
		RunE: onCluster(o, config, u.run),
	}
	flags := cmd.Flags()
	flags.StringVar(&u.clusterName, "cluster", "", "all ScheduledMachines of this `Cluster` that are being deleted")
	flags.StringVar(&u.backups, "backup-dir", ".", "`directory` of the files in which the objects are saved")
	flags.BoolVar(&u.dryRun, "dry-run", false, "only show which deletions can be undone")
	flags.Var(&u.timeout, "timeout", "how long to wait for the manager to confirm the pause of an object, and for the object to be gone")
	return cmd
}

func (u *undoOptions) run(ctx context.Context, c *cluster, names []string) error {
	if u.clusterName != "" {
		var err error
		if names, err = u.names(ctx, c); err != nil {
			return err
		}
		if len(names) == 0 {
			return write(c.Err, fmt.Sprintf("No ScheduledMachine of Cluster %s%s is being deleted.\n", u.clusterName, c.inNamespace()))
		}
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, (&undo{undoOptions: u, cluster: c, name: name}).run(ctx))
	}
	return errors.Join(errs...)
}

// names returns the ScheduledMachines of the Cluster that are being deleted or have a backup, because an
// interrupted undo-delete may have removed them.
func (u *undoOptions) names(ctx context.Context, c *cluster) ([]string, error) {
	objects, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	names, err := u.saved(c.namespace)
	for i := range objects {
		if m := &objects[i]; m.Spec.ClusterName == u.clusterName && !m.DeletionTimestamp.IsZero() {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// An undo undoes the deletion of one ScheduledMachine. Every step can be repeated, and each state between two steps is
// safe. First the object is paused and being deleted, with its Machine: the manager does nothing. Then it is absent,
// and the Machine has no owner: the manager does nothing either, and the backup has the object.
type undo struct {
	*undoOptions
	*cluster

	name string
	// stored is the latest version of the object that was read, with fields that this program does not know. m has the
	// fields that it knows.
	stored *unstructured.Unstructured
	m      *v1alpha1.ScheduledMachine
	// managers are the field managers of the object as the command found it.
	managers []metav1.ManagedFieldsEntry
}

// pausedBy is the value of the paused annotation that undo-delete sets. A pause with this value ends with the undo.
const pausedBy = writer.Plugin + " undo-delete"

// errChanged means that another client changed the object during the undo.
var errChanged = errors.New("another client changed it meanwhile: run the command again")

// cannotUndo is why a deletion cannot be undone now.
type cannotUndo struct{ error }

func cannot(format string, args ...any) error { return cannotUndo{fmt.Errorf(format, args...)} }

func (u *undo) run(ctx context.Context) error {
	err := u.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return u.continueFromBackup(ctx, err)
	case err != nil:
		return err
	case u.m.DeletionTimestamp.IsZero():
		return errors.Join(u.forgetBackup(), u.printf("it is not being deleted."))
	}
	u.managers = u.m.ManagedFields
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return u.check(ctx) }) // Controllers write to the Machine meanwhile.
	impossible := errors.As(err, new(cannotUndo))
	switch {
	case err != nil && (u.dryRun || !impossible):
		return failed(u.name, fmt.Errorf("%w. Nothing was changed", err))
	case u.dryRun:
		return u.printf("its deletion can be undone: its Machine %s still runs.", u.m.Status.MachineRef.Name)
	}
	if err := u.save(); err != nil {
		return err
	}
	if impossible { // An interrupted undo-delete may have left its pause.
		return u.refused(errors.Join(err, u.unpause(ctx)))
	}
	if err := u.printf("saved in %s until this is done. After an interruption, run the same command again.", u.path()); err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { return u.remove(ctx) })
	if err == nil {
		err = u.restore(ctx)
	}
	if err != nil {
		return u.refused(err)
	}
	kept := []string{fmt.Sprintf("its deletion is undone. Its Machine %s is kept, and was not drained.", u.m.Status.MachineRef.Name)}
	return u.printf("%s", strings.Join(append(kept, sentences(u.notes())...), "\n"))
}

func (u *undo) printf(format string, args ...any) error {
	return write(u.Out, u.name+": "+fmt.Sprintf(format, args...)+"\n")
}

// refused adds to an error where the object is saved, and what to do with it.
func (u *undo) refused(err error) error {
	if errors.As(err, new(cannotUndo)) {
		return failed(u.name, fmt.Errorf("%w. It is saved in %s: when the ScheduledMachine is gone, run the same command again, which creates it from the file", err, u.path()))
	}
	return failed(u.name, fmt.Errorf("%w. It is saved in %s: run the same command again. If it is paused or gone meanwhile, not even its owner's request is served", err, u.path()))
}

// check returns an error if the deletion cannot be undone, or if the person lacks a permission. It changes nothing.
func (u *undo) check(ctx context.Context) error {
	machine, err := u.machine(ctx)
	if err != nil {
		return err
	}
	if err := u.dropOwner(ctx, machine, client.DryRunAll); err != nil {
		return err
	}
	// The API server checks permissions and webhooks before it reports that the object exists.
	switch err := u.create(ctx, client.DryRunAll); {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err == nil:
		return errChanged
	default:
		return fmt.Errorf("creating it again would fail: %w", err)
	}
}

// machine returns the Machine, and an error if the deletion cannot be undone.
//
// Cluster API has made the Machine an owner of the bootstrap config and the infrastructure machine before the Machine
// has a Node. So the garbage collector only removes the deleted ScheduledMachine from their owners.
func (u *undo) machine(ctx context.Context) (*clusterv1.Machine, error) {
	if request, requested := u.m.ReclaimRequest(); requested {
		return nil, cannot("it is being given back to its owner (%s), so the machine leaves", sentence(request))
	}
	if u.m.Spec.KillSwitch {
		return nil, cannot("spec.killSwitch is true, so the machine leaves")
	}
	if claimed := hostClaimed(u.m); claimed != nil {
		return nil, cannot("another ScheduledMachine could take its host meanwhile. %s", claimed.Message)
	}
	ref := u.m.Status.MachineRef
	if ref == nil {
		return nil, cannot("it has no Machine that could be kept")
	}
	machine := &clusterv1.Machine{}
	err := u.Get(ctx, u.key(ref.Name), machine)
	switch {
	case apierrors.IsNotFound(err):
		return nil, cannot("its Machine %s is gone", ref.Name)
	case err != nil:
		return nil, failed("reading Machine "+ref.Name, err)
	case machine.UID != ref.UID:
		return nil, fmt.Errorf("its status does not show its Machine %s yet", ref.Name)
	case !machine.DeletionTimestamp.IsZero():
		return nil, leaves(machine)
	case !machine.Status.NodeRef.IsDefined():
		return nil, cannot("its Machine %s has not joined the cluster, so there is nothing to keep", ref.Name)
	}
	return machine, nil
}

func leaves(machine *clusterv1.Machine) error {
	return cannot("its Machine %s is being deleted (since %s), which cannot be undone: the machine leaves, and joins again by its schedule when the ScheduledMachine exists again",
		machine.Name, machine.DeletionTimestamp.UTC().Format(time.RFC3339))
}

// remove removes the ScheduledMachine, and no other object. It returns a conflict if the object changed after the
// checks: an owner may have requested the machine.
func (u *undo) remove(ctx context.Context) error {
	if err := u.pause(ctx); err != nil {
		return err
	}
	machine, err := u.machine(ctx)
	if err == nil {
		err = u.dropOwner(ctx, machine)
	}
	if err == nil && !machine.DeletionTimestamp.IsZero() {
		err = leaves(machine)
	}
	if errors.As(err, new(cannotUndo)) {
		return errors.Join(err, u.unpause(ctx))
	}
	if err != nil {
		return err
	}
	if err := u.save(); err != nil {
		return err
	}
	before := u.m.DeepCopy()
	if !controllerutil.RemoveFinalizer(u.m, v1alpha1.ScheduledMachineFinalizer) {
		return nil
	}
	return u.patch(ctx, u.m, before)
}

// pause pauses the object and waits until the manager confirms it. The manager reconciles an object once at a time, so
// it does not delete the Machine after that.
func (u *undo) pause(ctx context.Context) error {
	if err := u.read(ctx); err != nil {
		return err
	}
	if !annotations.HasPaused(u.m) {
		before := u.m.DeepCopy()
		metav1.SetMetaDataAnnotation(&u.m.ObjectMeta, clusterv1.PausedAnnotation, pausedBy)
		if err := u.patch(ctx, u.m, before); err != nil {
			return err
		}
	}
	uid := u.m.UID
	confirmed := func(m *v1alpha1.ScheduledMachine) bool {
		return m == nil || m.UID != uid || conditions.IsTrue(m, clusterv1.PausedCondition)
	}
	if err := u.await(ctx, confirmed, func() error {
		return fmt.Errorf("no manager confirmed its pause within %s: does one serve it? Nothing was removed, and it stays paused. "+
			"To end the pause, and let the machine leave: kubectl -n %s annotate scheduledmachine %s %s-", &u.timeout, u.namespace, u.name, clusterv1.PausedAnnotation)
	}); err != nil {
		return err
	}
	err := u.read(ctx)
	if apierrors.IsNotFound(err) || err == nil && (u.m.UID != uid || !paused(u.m)) {
		return errChanged
	}
	return err
}

// unpause ends the pause that undo-delete began, so that the departure goes on and owners' requests are served.
func (u *undo) unpause(ctx context.Context) error {
	_, err := u.change(ctx, u.name, func(m *v1alpha1.ScheduledMachine) error {
		if m.Annotations[clusterv1.PausedAnnotation] == pausedBy {
			delete(m.Annotations, clusterv1.PausedAnnotation)
		}
		return nil
	})
	return err
}

// await reads the object until done returns true, for nil once it is gone. After the timeout it returns late(). It does
// not watch: a person without that permission would leave the object paused.
func (u *undo) await(ctx context.Context, done func(*v1alpha1.ScheduledMachine) bool, late func() error) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, time.Duration(u.timeout), true, func(context.Context) (bool, error) {
		_, m, err := u.readObject(ctx)
		if apierrors.IsNotFound(err) {
			return done(nil), nil
		}
		return err == nil && done(m), err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return late()
	}
	return err
}

// pollInterval is the time between two reads of an object. A manager without a backlog confirms a pause sooner.
const pollInterval = 100 * time.Millisecond

// restore creates the object again once it is gone, and removes the backup.
func (u *undo) restore(ctx context.Context) error {
	uid := u.m.UID
	var finalizers []string
	absent := func(m *v1alpha1.ScheduledMachine) bool {
		if m != nil {
			finalizers = m.Finalizers
		}
		return m == nil || m.UID != uid
	}
	if err := u.await(ctx, absent, func() error {
		return fmt.Errorf("it still exists, because of the finalizers of other programs: %s", strings.Join(finalizers, ", "))
	}); err != nil {
		return err
	}
	err := retry.OnError(createBackoff, transient, func() error { return u.create(ctx) })
	if apierrors.IsAlreadyExists(err) {
		err = u.restoreState(ctx)
	} else if err == nil {
		err = u.restoreManagers(ctx)
	}
	if err != nil {
		return err
	}
	return u.forgetBackup()
}

// notes returns a note if a topology or a tool may delete the object again.
func (u *undo) notes() []string {
	if _, managed := u.m.Labels[v1alpha1.TopologyOwnedLabel]; managed {
		return []string{"it comes from the topology of its Cluster, which deletes it again if it does not have it: correct the topology"}
	}
	source := writer.Last(u.m.ManagedFields, specFields)
	if source == nil || strings.HasPrefix(source.Manager, "kubectl") {
		return nil
	}
	return []string{fmt.Sprintf("its spec comes from %s, which may delete it again: correct its source", source)}
}
