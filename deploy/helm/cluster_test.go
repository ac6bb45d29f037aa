package helm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// Servers that are started with the command lines of the chart form the cluster that it means: with
// the secret that it makes, and with certificates; core servers apart, and combined. Only the
// hosts, ports and folders are those of this machine.
func TestServersFormACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	small := "core: {extraArgs: [--cache=8MiB, --mem-table=1MiB, --log-mem-table=1MiB]}\n" +
		"nodes: {replicas: %d, extraArgs: [--cache=8MiB, --mem-table=1MiB, --log-mem-table=1MiB]}\n"
	for name, c := range map[string]struct {
		values string
		nodes  int
	}{
		"secret":             {fmt.Sprintf(small, 1), 1},
		"secret, combined":   {fmt.Sprintf(small, 0) + "combined: true\n", 3},
		"TLS, cert-manager":  {fmt.Sprintf(small, 1) + cases["cert-manager"], 1},
		"TLS, and peer name": {fmt.Sprintf(small, 1) + cases["TLS by secrets"], 1},
	} {
		t.Run(name, func(t *testing.T) { formCluster(t, c.values, c.nodes) })
	}
}

func formCluster(t *testing.T, values string, nodes int) {
	o := mustRender(t, release{values: values})
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		cmd := exec.Command(program(t), args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		return said.String(), err
	}
	must := func(args ...string) {
		t.Helper()
		if said, err := run(args...); err != nil {
			t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, said)
		}
	}

	// The files that Kubernetes mounts.
	certs := filepath.Join(dir, "certs")
	must("cert", "ca", "--dir", certs)
	must("cert", "server", "--dir", certs, "--name", "server", "127.0.0.1", "server.tidemark")
	must("cert", "client", "--dir", certs, "tester")
	secret := filepath.Join(dir, "cluster.secret")
	for _, s := range o.secrets {
		if err := os.WriteFile(secret, s.Data["cluster.secret"], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace := []string{
		"/etc/tidemark/tls/tls.crt", certs + "/server.crt",
		"/etc/tidemark/tls/tls.key", certs + "/server.key",
		"/etc/tidemark/tls/server-ca.crt", certs + "/server-ca.crt",
		"/etc/tidemark/tls/client-ca.crt", certs + "/client-ca.crt",
		"/etc/tidemark/secret/cluster.secret", secret,
	}
	// The addresses that the DNS gives.
	type pod struct {
		name, address, http string
		args                []string
	}
	var pods []pod
	for _, set := range o.statefulSets {
		for i, host := range hosts(set, o.domain()) {
			listen, _ := flag(server(set), "listen")
			p := pod{name: fmt.Sprintf("%s-%d", set.Name, i), address: porttest.Address(t),
				http: porttest.Address(t)}
			p.args = expand(server(set).Args, p.name)
			replace = append(replace, host+listen, p.address)
			pods = append(pods, p)
		}
	}
	replacer := strings.NewReplacer(replace...)

	tls := false
	var endpoints []string
	for _, p := range pods {
		var said bytes.Buffer
		for i, arg := range p.args {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "--dir":
				arg = "--dir=" + filepath.Join(dir, p.name)
			case "--listen":
				arg = "--listen=" + strings.Replace(p.address, "127.0.0.1", "", 1) // all addresses
			case "--http":
				arg = "--http=" + p.http
			case "--tls-cert":
				tls = true
			}
			p.args[i] = replacer.Replace(arg)
		}
		cmd := exec.Command(program(t), p.args...)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		endpoints = append(endpoints, p.address)
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Errorf("%s does not stop", p.name)
				_ = cmd.Process.Kill()
				<-ended
			}
			if t.Failed() {
				t.Logf("%s said: %s", p.name, said.String())
			}
		})
	}
	status := []string{"status", "--wait", fmt.Sprintf("--nodes=%d", nodes), "--timeout=60s",
		"--endpoints=" + strings.Join(endpoints, ",")}
	if tls {
		status = append(status, "--tls-ca="+certs+"/server-ca.crt", "--tls-cert="+certs+"/tester.crt",
			"--tls-key="+certs+"/tester.key")
	}
	must(status...)
}
