// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is the part of a kubeconfig file that the agent supports. See "kubeconfig (v1)" of the Kubernetes
// reference.
type kubeconfig struct {
	CurrentContext string                     `json:"current-context"`
	Clusters       []named[clusterEntry]      `json:"clusters"`
	Users          []named[userEntry]         `json:"users"`
	Contexts       []named[map[string]string] `json:"contexts"`
}

// named is an entry of a list. Its content is under the key of its kind.
type named[T any] struct {
	Name    string `json:"name"`
	Cluster T      `json:"cluster"`
	User    T      `json:"user"`
	Context T      `json:"context"`
}

type clusterEntry struct {
	Server        string `json:"server"`
	TLSServerName string `json:"tls-server-name"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	CA            string `json:"certificate-authority"`
	CAData        string `json:"certificate-authority-data"`
	ProxyURL      string `json:"proxy-url"`
}

type userEntry struct {
	Cert     string `json:"client-certificate"`
	CertData string `json:"client-certificate-data"`
	Key      string `json:"client-key"`
	KeyData  string `json:"client-key-data"`
	Token    string `json:"token"`
	File     string `json:"tokenFile"`
	// The following fields cause an error.
	Username string         `json:"username"`
	Exec     map[string]any `json:"exec"`
	Provider map[string]any `json:"auth-provider"`
}

// FromKubeconfig returns a client for the current context of the file. It supports client certificates and tokens, by
// value or by file. It rejects exec plugins, auth providers and passwords, which need code that the agent does without.
func FromKubeconfig(path string, o Options) (*Client, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // an argument of the agent
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	var k kubeconfig
	if err := yaml.Unmarshal(raw, &k); err != nil {
		return nil, fmt.Errorf("parsing kubeconfig %s: %w", path, err)
	}
	c, err := k.client(filepath.Dir(path), o)
	if err != nil {
		return nil, fmt.Errorf("using kubeconfig %s: %w", path, err)
	}
	return c, nil
}

func (k kubeconfig) client(dir string, o Options) (*Client, error) {
	cluster, user, err := k.current()
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(cluster.Server)
	if err != nil || base.Host == "" || (base.Scheme != "https" && base.Scheme != "http") {
		return nil, fmt.Errorf("server %q is not a URL of http or https", cluster.Server)
	}
	// Paths are relative to the kubeconfig.
	for _, file := range []*string{&cluster.CA, &user.Cert, &user.Key, &user.File} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	if cluster.CAData != "" {
		cluster.CA = ""
	}
	config, err := cluster.tls()
	if err != nil {
		return nil, err
	}
	if err := user.certificate(config); err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if cluster.ProxyURL != "" {
		via, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("parsing proxy-url: %w", err)
		}
		proxy = http.ProxyURL(via)
	}
	client, err := clientTrusting(cluster.CA, config, proxy, o.Now)
	if err != nil {
		return nil, err
	}
	return &Client{base: base, http: client, token: user.token(o.Now)}, nil
}

func (k kubeconfig) current() (clusterEntry, userEntry, error) {
	context, ok := find(k.Contexts, k.CurrentContext)
	if !ok {
		return clusterEntry{}, userEntry{}, fmt.Errorf("current-context %q is not among the contexts", k.CurrentContext)
	}
	cluster, ok := find(k.Clusters, context.Context["cluster"])
	if !ok {
		return clusterEntry{}, userEntry{}, fmt.Errorf("cluster %q is not among the clusters", context.Context["cluster"])
	}
	user, ok := find(k.Users, context.Context["user"])
	if !ok {
		return clusterEntry{}, userEntry{}, fmt.Errorf("user %q is not among the users", context.Context["user"])
	}
	if user.User.Exec != nil || user.User.Provider != nil || user.User.Username != "" {
		return clusterEntry{}, userEntry{}, fmt.Errorf("user %q: exec plugins, auth providers and passwords are not supported; use a client certificate or a token", user.Name)
	}
	return cluster.Cluster, user.User, nil
}

func find[T any](list []named[T], name string) (named[T], bool) {
	for _, e := range list {
		if e.Name == name {
			return e, true
		}
	}
	return named[T]{}, false
}

func (c clusterEntry) tls() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.TLSServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // the kubeconfig says so
	}
	if c.CAData == "" {
		return config, nil
	}
	ca, err := base64.StdEncoding.DecodeString(c.CAData)
	if err == nil {
		config.RootCAs, err = certPool(ca)
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate-authority-data: %w", err)
	}
	return config, nil
}

// certificate reads a certificate in files again for every connection, because the kubelet and others renew it in
// place.
func (u userEntry) certificate(config *tls.Config) error {
	if u.Cert == "" && u.CertData == "" {
		return nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := dataOrFile(u.CertData, u.Cert)
		key, keyErr := dataOrFile(u.KeyData, u.Key)
		if err := errors.Join(err, keyErr); err != nil {
			return nil, fmt.Errorf("reading client certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("using client certificate: %w", err)
		}
		return &pair, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	_, err := load()
	return err
}

func (u userEntry) token(now func() time.Time) func(fresh bool) (string, error) {
	switch {
	case u.File != "":
		return tokenFrom(u.File, now)
	case u.Token != "":
		return func(bool) (string, error) { return u.Token, nil }
	default:
		return nil
	}
}

// dataOrFile returns the decoded data, or else the content of the file, or nil if both are empty.
func dataOrFile(data, file string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file != "":
		return os.ReadFile(file) //nolint:gosec // an argument of the agent names it
	default:
		return nil, nil
	}
}
