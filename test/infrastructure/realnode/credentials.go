// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeCredentials gives the kubelet a certificate for its Node only, by a certificate signing request as in any
// cluster.
func (s Spec) writeCredentials(ctx context.Context, cfg *rest.Config) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + s.NodeName, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		return err
	}
	cert, err := sign(ctx, cfg, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		return fmt.Errorf("signing certificate of node %s: %w", s.NodeName, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	out := clientcmdapi.NewConfig()
	out.Clusters["plane"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	out.AuthInfos["node"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cert, ClientKeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
	out.Contexts["node"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "node"}
	out.CurrentContext = "node"
	return clientcmd.WriteToFile(*out, s.path("kubeconfig"))
}

func sign(ctx context.Context, cfg *rest.Config, request []byte) ([]byte, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "plane-node-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "PlaneMachine",
	}}
	// The controller manager approves such a request, too, and may be the first.
	if _, err := requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if csr, err = requests.Get(ctx, csr.Name, metav1.GetOptions{}); err != nil || len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
