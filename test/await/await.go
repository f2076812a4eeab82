// SPDX-License-Identifier: Apache-2.0

// Package await answers one question: when has it happened? It reads again and again,
// and says at the end what was still in the way.
package await

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interval is short next to anything that is waited for.
const interval = 50 * time.Millisecond

// notYetError is a reason to try again. It is what a caller sees when time runs out.
type notYetError struct{ error }

func (e notYetError) Unwrap() error { return e.error }

// NotYet is a reason for Poll to try again.
func NotYet(format string, args ...any) error { return notYetError{fmt.Errorf(format, args...)} }

// Poll calls f until it returns true, fails, or ctx ends. The last reason to wait is
// part of the error, because a bare deadline explains nothing. A pause is a tenth of the wait so
// far, between once and five times every: reads of tests took a quarter of an API server's CPU.
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
		// What is cut off by the end of ctx explains no more than that end.
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

// Object reads obj until cond accepts it. A missing object is waited for. The error
// tells what cond said last.
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

// Gone returns when there is no obj any more.
func Gone(ctx context.Context, r client.Reader, obj client.Object) error {
	key := client.ObjectKeyFromObject(obj)
	return Poll(ctx, interval, func(ctx context.Context) (bool, error) {
		err := r.Get(ctx, key, obj)
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, NotYet("reading %T %s: %w", obj, key, err)
		default:
			return false, NotYet("%T %s is still there: finalizers %v", obj, key, obj.GetFinalizers())
		}
	})
}

// Until calls cond until it returns nil. The error tells what cond said last.
func Until(ctx context.Context, cond func(context.Context) error) error {
	return Poll(ctx, interval, func(ctx context.Context) (bool, error) {
		if err := cond(ctx); err != nil {
			return false, NotYet("waiting: %w", err)
		}
		return true, nil
	})
}
