// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// injectFrom names the Certificate, as namespace/name, whose authority the object needs.
const injectFrom = "cert-manager.io/inject-ca-from"

var (
	certificates = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	// injectable are the kinds that cert-manager injects authorities into, except APIService.
	injectable = []schema.GroupVersionResource{
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	}
)

// pass issues every Certificate and injects every missing authority. An error with one object does not stop the others.
func pass(ctx context.Context, client dynamic.Interface) error {
	list, err := client.Resource(certificates).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	authorities, errs := map[string]string{}, []error(nil)
	for i := range list.Items {
		c := &list.Items[i]
		authority, err := issue(ctx, client, c)
		if err != nil {
			errs = append(errs, fmt.Errorf("issuing Certificate %s/%s: %w", c.GetNamespace(), c.GetName(), err))
			continue
		}
		authorities[c.GetNamespace()+"/"+c.GetName()] = authority
	}
	for _, r := range injectable {
		errs = append(errs, injectAll(ctx, client.Resource(r), authorities))
	}
	return errors.Join(errs...)
}

// issue creates the Secret of a Certificate if it is missing, and returns its authority in base64.
func issue(ctx context.Context, client dynamic.Interface, c *unstructured.Unstructured) (string, error) {
	name, _, _ := unstructured.NestedString(c.Object, "spec", "secretName")
	in := client.Resource(secrets).Namespace(c.GetNamespace())
	secret, err := in.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && c.GetDeletionTimestamp() == nil {
		secret, err = create(ctx, in, c, name)
	}
	if err != nil {
		return "", err
	}
	authority, _, _ := unstructured.NestedString(secret.Object, "data", "ca.crt")
	return authority, ready(ctx, client, c)
}

func create(ctx context.Context, in dynamic.ResourceInterface, c *unstructured.Unstructured, name string) (*unstructured.Unstructured, error) {
	names, _, _ := unstructured.NestedStringSlice(c.Object, "spec", "dnsNames")
	certificate, key, err := sign(names)
	if err != nil {
		return nil, err
	}
	encoded := base64.StdEncoding.EncodeToString(certificate)
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"data": map[string]any{"ca.crt": encoded, "tls.crt": encoded, "tls.key": base64.StdEncoding.EncodeToString(key)},
	}}
	secret.SetName(name)
	secret.SetAnnotations(map[string]string{"cert-manager.io/certificate-name": c.GetName()})
	slog.Info("Issuing", "namespace", c.GetNamespace(), "secret", name)
	return in.Create(ctx, secret, metav1.CreateOptions{})
}

// ready sets the Certificate's condition Ready, unless it has conditions.
func ready(ctx context.Context, client dynamic.Interface, c *unstructured.Unstructured) error {
	if _, said, _ := unstructured.NestedSlice(c.Object, "status", "conditions"); said {
		return nil
	}
	condition := map[string]any{
		"type": "Ready", "status": "True", "reason": "Ready", "message": "Issued",
		"lastTransitionTime": c.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z07:00"),
	}
	if err := unstructured.SetNestedSlice(c.Object, []any{condition}, "status", "conditions"); err != nil {
		return err
	}
	_, err := client.Resource(certificates).Namespace(c.GetNamespace()).UpdateStatus(ctx, c, metav1.UpdateOptions{})
	return err
}

// injectAll writes the authorities to the objects of one kind that need them.
func injectAll(ctx context.Context, in dynamic.ResourceInterface, authorities map[string]string) error {
	list, err := in.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		o := &list.Items[i]
		authority := authorities[o.GetAnnotations()[injectFrom]]
		if authority == "" || !inject(o, authority) {
			continue
		}
		slog.Info("Injecting", "kind", o.GetKind(), "name", o.GetName())
		if _, err := in.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("injecting into %s %s: %w", o.GetKind(), o.GetName(), err))
		}
	}
	return errors.Join(errs...)
}
