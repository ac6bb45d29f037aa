package embedded

import (
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// etcdProbes are the pages of etcd's checks, and of /health as kubeadm asks for it.
var etcdProbes = []string{"/readyz/data_corruption", "/readyz/serializable_read",
	"/readyz/linearizable_read", "/readyz/linearizable_read?verbose", "/readyz/non_learner",
	"/livez/serializable_read", "/livez/serializable_read?verbose", "/livez",
	"/livez?exclude=serializable_read", "/livez?exclude=unknown", "/health?exclude=NOSPACE",
	"/health?exclude=NOSPACE&serializable=true", "/health?serializable=false"}

// TestProbesLikeEtcd: etcd's checks answer by name as in a real etcd, at members and at a server
// that is none: in health, while the alarm CORRUPT is raised, and without a quorum. What
// is asked of the whole server is about the whole server.
func TestProbesLikeEtcd(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Members: 3, Args: []string{"--unsafe-no-fsync"}})
	cluster := startEtcd(t, nil)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(at, path string) string { return httpGet(t, client, "http://"+at+path, "") }
	theirs, member, node := etcd.Endpoints()[0], cluster.Endpoints()[0], cluster.Endpoints()[3]
	same := func(at string) {
		t.Helper()
		for _, path := range etcdProbes {
			// The reasons of what fails have the words of each.
			want, got := ask(theirs, path), ask(at, path)
			if want != got && (!strings.HasPrefix(want, "503 ") || !strings.HasPrefix(got, "503 ")) {
				t.Errorf("%s\netcd: %sours: %s", path, want, got)
			}
		}
	}
	same(member)
	same(node)
	for _, at := range []string{member, node} {
		verbose := ask(at, "/readyz?verbose")
		for _, line := range []string{"200 [+]server ok\n", "[+]data_corruption ok ",
			"[+]linearizable_read ok ", "[+]serializable_read ok ", "[+]non_learner ok ", "\nok\n"} {
			if !strings.Contains(verbose, line) {
				t.Errorf("%s lacks %q:\n%s", at, line, verbose)
			}
		}
		if got := ask(at, "/readyz/nothing"); !strings.HasPrefix(got, "404 there is no such check") ||
			!strings.Contains(got, "linearizable_read") {
			t.Error(got)
		}
	}

	for _, at := range []string{theirs, member} {
		api := pb.NewMaintenanceClient(etcdClient(t, nil, at).ActiveConnection())
		if _, err := api.Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE,
			MemberID: 1, Alarm: pb.AlarmType_CORRUPT}); err != nil {
			t.Fatal(err)
		}
	}
	same(member)
	awaitTrue(t, "the server that is no member tells the alarm", func() bool {
		return strings.HasPrefix(ask(node, "/health"), "503 ")
	})
	same(node)
	for _, path := range []string{"/health?exclude=CORRUPT", "/health", "/readyz/data_corruption"} {
		if got, want := ask(node, path), ask(member, path); got != want {
			t.Errorf("%s\nof the member: %sof a server that is none: %s", path, want, got)
		}
	}
	if got := ask(member, "/readyz/data_corruption"); got !=
		"503 [-]data_corruption failed: alarm activated: CORRUPT\n" {
		t.Error(got)
	}
	if got := ask(member, "/readyz"); got != "200 ok\n" {
		t.Errorf("the alarm takes a server from its clients: %s", got)
	}

	for i := 1; i < 3; i++ {
		if err := etcd.Kill(i); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Server(i).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{theirs, member, node} {
		awaitTrue(t, "there is no quorum", func() bool {
			return strings.HasPrefix(ask(at, "/readyz/linearizable_read"), "503 ")
		})
	}
	same(member)
	if got := ask(node, "/readyz/linearizable_read"); !strings.HasPrefix(got, "503 ") {
		t.Errorf("a server that is no member: %s", got)
	}
}
