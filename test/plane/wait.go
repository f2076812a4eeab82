// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// notYetError is a reason to try again. It is what a caller sees when time runs out.
type notYetError struct{ error }

func (e notYetError) Unwrap() error { return e.error }

func notYet(format string, args ...any) error { return notYetError{fmt.Errorf(format, args...)} }

// poll calls f until it says yes, fails, or ctx ends. The last reason to wait is
// part of the error, because a bare deadline explains nothing.
func poll(ctx context.Context, every time.Duration, f func(context.Context) (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		ok, err := f(ctx)
		if ok {
			return nil
		}
		if _, again := errors.AsType[notYetError](err); err != nil && !again {
			return err
		}
		// What is cut off by the end of ctx explains no more than that end.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// Wait reads obj from the cluster until cond accepts it. A missing object is
// waited for. The error tells what cond said last.
func (c *Cluster) Wait(ctx context.Context, obj client.Object, cond func() error) error {
	key := client.ObjectKeyFromObject(obj)
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		if err := c.Client.Get(ctx, key, obj); err != nil {
			return false, notYet("reading %T %s: %w", obj, key, err)
		}
		if err := cond(); err != nil {
			return false, notYet("%T %s: %w", obj, key, err)
		}
		return true, nil
	})
}

// WaitGone returns when obj is no longer in the cluster.
func (c *Cluster) WaitGone(ctx context.Context, obj client.Object) error {
	key := client.ObjectKeyFromObject(obj)
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		err := c.Client.Get(ctx, key, obj)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, notYet("%T %s is still there: finalizers %v, %w", obj, key, obj.GetFinalizers(), errors.Join(err))
	})
}

// Until calls cond until it returns nil. The error tells what cond said last.
func Until(ctx context.Context, cond func(context.Context) error) error {
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		if err := cond(ctx); err != nil {
			return false, notYet("waiting: %w", err)
		}
		return true, nil
	})
}
