// SPDX-License-Identifier: Apache-2.0

// Package await polls the API until a condition holds. On a timeout its errors state the last unmet condition.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interval is short compared with every wait of a test.
const interval = 50 * time.Millisecond

// notYetError is a reason to retry. Callers see it after a timeout.
type notYetError struct{ error }

func (e notYetError) Unwrap() error { return e.error }

// NotYet returns an error that makes Poll retry.
func NotYet(format string, args ...any) error { return notYetError{fmt.Errorf(format, args...)} }

// Poll calls f until it returns true, fails, or ctx ends. The error includes the last reason to retry, because a bare
// deadline explains nothing. A pause is a tenth of the wait so far, between once and five times every: reads of tests
// took a quarter of an API server's CPU.
func Poll(ctx context.Context, every time.Duration, f func(context.Context) (bool, error)) error {
	timer := time.NewTimer(every)
	defer timer.Stop()
	var waited time.Duration
	var last error
	for {
		ok, err := f(ctx)
		if ok {
			return nil
		}
		if _, again := errors.AsType[notYetError](err); err != nil && !again {
			return err
		}
		// An error that only reports the end of ctx would hide the reason.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		pause := min(max(every, waited/10), 5*every)
		waited += pause
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		case <-timer.C:
		}
	}
}

// Object reads obj until cond returns nil. It also waits for a missing object. The error includes cond's last error.
func Object(ctx context.Context, r client.Reader, obj client.Object, cond func() error) error {
	key := client.ObjectKeyFromObject(obj)
	return Poll(ctx, interval, func(ctx context.Context) (bool, error) {
		if err := r.Get(ctx, key, obj); err != nil {
			return false, NotYet("reading %T %s: %w", obj, key, err)
		}
		if err := cond(); err != nil {
			return false, NotYet("%T %s: %w", obj, key, err)
		}
		return true, nil
	})
}

// Gone waits until obj does not exist, or another object has its name. Without a UID, it waits for the name.
func Gone(ctx context.Context, r client.Reader, obj client.Object) error {
	key := client.ObjectKeyFromObject(obj)
	now := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one
	return Poll(ctx, interval, func(ctx context.Context) (bool, error) {
		err := r.Get(ctx, key, now)
		switch {
		case apierrors.IsNotFound(err), err == nil && obj.GetUID() != "" && now.GetUID() != obj.GetUID():
			return true, nil
		case err != nil:
			return false, NotYet("reading %T %s: %w", obj, key, err)
		default:
			return false, NotYet("%T %s is still there: finalizers %v", obj, key, now.GetFinalizers())
		}
	})
}

// Until calls cond until it returns nil. The error includes cond's last error.
func Until(ctx context.Context, cond func(context.Context) error) error {
	return Poll(ctx, interval, func(ctx context.Context) (bool, error) {
		if err := cond(ctx); err != nil {
			return false, NotYet("waiting: %w", err)
		}
		return true, nil
	})
}
