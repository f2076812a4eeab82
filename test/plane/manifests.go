// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// manifests are the provider's objects that are needed if its manager is a process on this machine.
type manifests struct {
	crds       []*apiextensionsv1.CustomResourceDefinition
	mutating   []*admissionregistrationv1.MutatingWebhookConfiguration
	validating []*admissionregistrationv1.ValidatingWebhookConfiguration
}

func readManifests(bin, name string) (*manifests, error) {
	b, err := os.ReadFile(filepath.Join(bin, "manifests", name+".yaml")) //nolint:gosec // built by make
	if err != nil {
		return nil, missing(bin, err)
	}
	m, err := parseManifests(b)
	if err != nil {
		return nil, fmt.Errorf("reading manifests of %s: %w", name, err)
	}
	return m, nil
}

// Objects returns the objects in YAML documents.
func Objects(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
			return nil, err
		}
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

func parseManifests(b []byte) (*manifests, error) {
	m := &manifests{}
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err != nil {
			return nil, err
		}
		if err := m.add(doc); err != nil {
			return nil, err
		}
	}
}

func (m *manifests) add(doc []byte) error {
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "CustomResourceDefinition":
		return into(doc, &m.crds)
	case "MutatingWebhookConfiguration":
		return into(doc, &m.mutating)
	case "ValidatingWebhookConfiguration":
		return into(doc, &m.validating)
	default:
		return nil // The plane does not use Deployments, roles and certificates of the manifests.
	}
}

func into[T any](doc []byte, list *[]*T) error {
	obj := new(T)
	if err := yaml.Unmarshal(doc, obj); err != nil {
		return err
	}
	*list = append(*list, obj)
	return nil
}

// pointAt changes all webhooks to a server on this machine.
func (m *manifests) pointAt(port int, caPEM []byte) {
	url := func(path *string) *string {
		u := "https://" + hostPort(port)
		if path != nil {
			u += *path
		}
		return &u
	}
	for _, w := range m.mutating {
		for i := range w.Webhooks {
			cc := &w.Webhooks[i].ClientConfig
			*cc = admissionregistrationv1.WebhookClientConfig{URL: url(cc.Service.Path), CABundle: caPEM}
		}
	}
	for _, w := range m.validating {
		for i := range w.Webhooks {
			cc := &w.Webhooks[i].ClientConfig
			*cc = admissionregistrationv1.WebhookClientConfig{URL: url(cc.Service.Path), CABundle: caPEM}
		}
	}
	for _, crd := range m.crds {
		if cv := crd.Spec.Conversion; cv != nil && cv.Webhook != nil {
			cc := cv.Webhook.ClientConfig
			*cc = apiextensionsv1.WebhookClientConfig{URL: url(cc.Service.Path), CABundle: caPEM}
		}
	}
}

func (m *manifests) objects() []client.Object {
	var out []client.Object
	for _, o := range m.crds {
		out = append(out, o)
	}
	for _, o := range m.mutating {
		out = append(out, o)
	}
	for _, o := range m.validating {
		out = append(out, o)
	}
	return out
}

// InstallCRDs creates the CustomResourceDefinitions in YAML documents, ignoring other kinds, and waits until they are
// served. It does not change existing ones.
func (c *Cluster) InstallCRDs(ctx context.Context, docs ...[]byte) error {
	m, err := parseManifests(bytes.Join(docs, []byte("\n---\n")))
	if err != nil {
		return fmt.Errorf("reading CRDs: %w", err)
	}
	m.mutating, m.validating = nil, nil
	return c.install(ctx, m)
}

func (c *Cluster) install(ctx context.Context, m *manifests) error {
	for _, obj := range m.objects() {
		err := c.Client.Create(ctx, obj)
		if apierrors.IsAlreadyExists(err) {
			err = c.redirect(ctx, obj)
		}
		if err != nil {
			return fmt.Errorf("creating %s: %w", obj.GetName(), err)
		}
	}
	for _, crd := range m.crds {
		if err := c.Wait(ctx, crd, func() error { return established(crd) }); err != nil {
			return err
		}
	}
	return nil
}

// redirect updates existing webhooks with the addresses in obj.
func (c *Cluster) redirect(ctx context.Context, obj client.Object) error {
	switch o := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return update(ctx, c, o, func(stored *admissionregistrationv1.MutatingWebhookConfiguration) { stored.Webhooks = o.Webhooks })
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return update(ctx, c, o, func(stored *admissionregistrationv1.ValidatingWebhookConfiguration) { stored.Webhooks = o.Webhooks })
	case *apiextensionsv1.CustomResourceDefinition:
		if cv := o.Spec.Conversion; cv == nil || cv.Webhook == nil || cv.Webhook.ClientConfig.URL == nil {
			return nil
		}
		return update(ctx, c, o, func(stored *apiextensionsv1.CustomResourceDefinition) { stored.Spec.Conversion = o.Spec.Conversion })
	default:
		return nil
	}
}

// update applies change to the stored version of obj.
func update[T client.Object](ctx context.Context, c *Cluster, obj T, change func(T)) error {
	stored, ok := obj.DeepCopyObject().(T)
	if !ok {
		return fmt.Errorf("%T is not copied to its own kind", obj)
	}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(obj), stored); err != nil {
		return err
	}
	change(stored)
	return c.Client.Update(ctx, stored)
}

func established(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, cond := range crd.Status.Conditions {
		if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
	}
	return errors.New("not established")
}
