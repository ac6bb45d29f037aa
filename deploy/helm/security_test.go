package helm

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	core "k8s.io/api/core/v1"
)

// No server takes every caller for a server: each has certificates with both authorities, or
// the cluster secret, and never --insecure. All servers of a release do the same.
func TestServersKnowEachOther(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		kinds := map[bool]bool{}
		for _, set := range o.statefulSets {
			container, pod := server(set), &set.Spec.Template.Spec
			if _, ok := flag(container, "insecure"); ok {
				t.Errorf("%s is started with --insecure", set.Name)
			}
			_, withTLS := flag(container, "tls-cert")
			_, withSecret := flag(container, "secret-file")
			if withTLS == withSecret {
				t.Fatalf("%s: TLS %v, secret %v", set.Name, withTLS, withSecret)
			}
			kinds[withTLS] = true
			files := []string{"secret-file"}
			if withTLS {
				files = []string{"tls-cert", "tls-key", "tls-ca", "tls-peer-ca"}
			}
			for _, name := range files {
				file, _ := flag(container, name)
				if !hasFile(pod, container, file) {
					t.Errorf("%s: --%s=%s is on no volume", set.Name, name, file)
				}
			}
		}
		if len(kinds) != 1 {
			t.Error("some servers have TLS, and some have not")
		}
		for _, pod := range o.pods {
			for _, name := range []string{"tls-ca", "tls-cert", "tls-key"} {
				file, given := flag(&pod.Spec.Containers[0], name)
				if given != kinds[true] {
					t.Errorf("%s: --%s %v, and TLS %v", pod.Name, name, given, kinds[true])
				}
				if given && !hasFile(&pod.Spec, &pod.Spec.Containers[0], file) {
					t.Errorf("%s: --%s=%s is on no volume", pod.Name, name, file)
				}
			}
		}
	})
}

// hasFile says that a file is in a volume, which is mounted as a whole (else renewed certificates
// would not come through), and which only the pod's user and group can read.
func hasFile(pod *core.PodSpec, container *core.Container, file string) bool {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath != path.Dir(file) || mount.SubPath != "" || !mount.ReadOnly {
			continue
		}
		i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			return false
		}
		var items []core.KeyToPath
		mode := int32(0o777)
		if secret := pod.Volumes[i].Secret; secret != nil {
			items, mode = clustersecret.Items, *clustersecret.DefaultMode
		}
		if projected := pod.Volumes[i].Projected; projected != nil {
			mode = *projected.DefaultMode
			for _, source := range projected.Sources {
				if source.Secret != nil && source.Secret.Name != "" {
					items = append(items, source.Secret.Items...)
				}
				if source.ConfigMap != nil && source.ConfigMap.Name != "" {
					items = append(items, source.ConfigMap.Items...)
				}
			}
		}
		return mode == 0o440 && slices.ContainsFunc(items, func(item core.KeyToPath) bool {
			return item.Path == path.Base(file)
		})
	}
	return false
}

// The secret that the chart makes is one that the program takes, and another one in each release.
func TestGeneratedSecret(t *testing.T) {
	secret := func() string {
		o := mustRender(t, release{})
		if len(o.secrets) != 1 {
			t.Fatalf("%d secrets", len(o.secrets))
		}
		s := o.secrets[0]
		text := string(s.Data["cluster.secret"])
		if b, err := hex.DecodeString(strings.TrimSpace(text)); err != nil || len(b) != 32 {
			t.Errorf("the secret %q is not 64 hexadecimal digits", text)
		}
		if s.Annotations["helm.sh/resource-policy"] != "keep" || s.Immutable == nil || !*s.Immutable {
			t.Error("the secret can get lost")
		}
		volume := o.statefulSets[0].Spec.Template.Spec.Volumes[0].Secret
		if volume.SecretName != s.Name || volume.Items[0].Key != "cluster.secret" {
			t.Errorf("servers take %s, and the secret is %s", volume.SecretName, s.Name)
		}
		return text
	}
	if secret() == secret() {
		t.Error("two clusters have the same secret")
	}
	for name, values := range map[string]string{
		"existing secret": cases["existing secret"], "TLS": cases["cert-manager"],
	} {
		if o := mustRender(t, release{values: values}); len(o.secrets) > 0 {
			t.Errorf("%s: the chart makes %s", name, o.secrets[0].Name)
		}
	}
}

// A secret that is there stays, whatever renders the chart.
func TestSecretIsKept(t *testing.T) {
	before := "00112233445566778899aabbccddeeff\n"
	there := cluster{"Secret db-tidemark-cluster-secret": {
		"data": map[string]any{"cluster.secret": base64.StdEncoding.EncodeToString([]byte(before))}}}
	for _, upgrade := range []bool{false, true} {
		o := mustRender(t, release{upgrade: upgrade, cluster: there})
		if got := string(o.secrets[0].Data["cluster.secret"]); got != before {
			t.Errorf("upgrade %v: the secret became %q", upgrade, got)
		}
	}
}

// A server's certificate is good for every name by which servers and clients reach it, and for both
// sides of a connection, as docs/security.md asks; a client's is not one of a server.
func TestCertificates(t *testing.T) {
	eachCase(t, func(t *testing.T, o *objects) {
		of := map[string]*certmanager.Certificate{}
		for _, certificate := range o.certificates {
			of[certificate.Spec.SecretName] = certificate
		}
		if len(of) == 0 {
			return
		}
		for _, set := range o.statefulSets {
			sources := set.Spec.Template.Spec.Volumes[0].Projected.Sources
			certificate := of[sources[0].Secret.Name]
			if certificate == nil {
				t.Fatalf("%s: no certificate is in %s", set.Name, sources[0].Secret.Name)
			}
			for _, usage := range []certmanager.KeyUsage{certmanager.UsageServerAuth,
				certmanager.UsageClientAuth} {
				if !slices.Contains(certificate.Spec.Usages, usage) {
					t.Errorf("%s lacks the usage %s", certificate.Name, usage)
				}
			}
			leaf := &x509.Certificate{DNSNames: certificate.Spec.DNSNames}
			names := append(hosts(set, o.domain()), "localhost")
			for _, service := range o.services {
				if service.Spec.ClusterIP != core.ClusterIPNone {
					names = append(names, service.Name, service.Name+"."+service.Namespace+".svc",
						service.Name+"."+service.Namespace+".svc."+o.domain())
				}
			}
			if name, ok := flag(server(set), "tls-peer-name"); ok {
				names = append(names, name)
			}
			for _, monitor := range o.monitors {
				names = append(names, *monitor.Spec.Endpoints[0].TLSConfig.ServerName)
			}
			for _, name := range names {
				if err := leaf.VerifyHostname(name); err != nil {
					t.Errorf("%s: %v", certificate.Name, err)
				}
			}
		}
		authorities := map[bool]map[string]bool{true: {}, false: {}}
		for _, certificate := range o.certificates {
			if certificate.Spec.IsCA {
				continue
			}
			forServers := slices.Contains(certificate.Spec.Usages, certmanager.UsageServerAuth)
			issuer := certificate.Spec.IssuerRef
			authorities[forServers][issuer.Kind+issuer.Name] = true
			if forServers == strings.Contains(certificate.Name, "-client-") {
				t.Errorf("%s: usages %v", certificate.Name, certificate.Spec.Usages)
			}
		}
		for name := range authorities[true] {
			if authorities[false][name] {
				t.Errorf("%s signs certificates of servers and of clients", name)
			}
		}
	})
}

// The authorities that the chart makes exist and are authorities; servers take each for what it is.
func TestOwnAuthorities(t *testing.T) {
	o := mustRender(t, release{values: cases["cert-manager"]})
	issuers := map[string]string{} // name: the Secret with its certificate
	for _, issuer := range o.issuers {
		issuers[issuer.Name] = ""
		if issuer.Spec.CA != nil {
			issuers[issuer.Name] = issuer.Spec.CA.SecretName
		}
	}
	for _, certificate := range o.certificates {
		secret, ok := issuers[certificate.Spec.IssuerRef.Name]
		if !ok {
			t.Errorf("%s: there is no issuer %s", certificate.Name, certificate.Spec.IssuerRef.Name)
		}
		if certificate.Spec.IsCA == (secret != "") {
			t.Errorf("%s is signed by %s", certificate.Name, certificate.Spec.IssuerRef.Name)
		}
	}
	for _, set := range o.statefulSets {
		for _, source := range set.Spec.Template.Spec.Volumes[0].Projected.Sources {
			for _, item := range source.Secret.Items {
				if item.Path == "client-ca.crt" &&
					(source.Secret.Name != issuers["db-tidemark-client-ca"] || item.Key != "tls.crt") {
					t.Errorf("--tls-ca is %s of %s", item.Key, source.Secret.Name)
				}
			}
		}
	}
}

// The files of the authorities are those that the values name: with the one of clients in the place
// of that of servers every client could speak as a server.
func TestAuthoritiesAreThoseOfTheValues(t *testing.T) {
	for name, want := range map[string]struct{ servers, clients string }{
		"TLS by secrets": {"configMap authority servers.pem", "secret clients ca.crt"},
		"TLS by secrets, with the authority in them": {"secret servers ca.crt",
			"configMap clients clients.pem"},
		"cert-manager": {"secret db-tidemark-COMPONENT-tls ca.crt",
			"secret db-tidemark-client-ca tls.crt"},
		"cert-manager, with issuers": {"secret db-tidemark-COMPONENT-tls ca.crt",
			"configMap clients ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustRender(t, release{values: cases[name]})
			for _, set := range o.statefulSets {
				got := map[string]string{} // by file
				for _, source := range set.Spec.Template.Spec.Volumes[0].Projected.Sources {
					kind, of, items := "secret", "", []core.KeyToPath(nil)
					if source.Secret != nil {
						of, items = source.Secret.Name, source.Secret.Items
					} else {
						kind, of, items = "configMap", source.ConfigMap.Name, source.ConfigMap.Items
					}
					for _, item := range items {
						got[item.Path] = kind + " " + of + " " + item.Key
					}
				}
				for flagName, from := range map[string]string{
					"tls-peer-ca": want.servers, "tls-ca": want.clients,
				} {
					file, _ := flag(server(set), flagName)
					from = strings.ReplaceAll(from, "COMPONENT", component(set))
					if got[path.Base(file)] != from {
						t.Errorf("%s: --%s is %s; want %s", set.Name, flagName, got[path.Base(file)], from)
					}
				}
			}
		})
	}
}
