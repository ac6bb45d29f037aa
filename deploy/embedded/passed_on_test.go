package embedded

import (
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/tidemarkdb/tidemark/placement/etcdapi"
)

// registered notes the names of services.
type registered []string

func (r *registered) RegisterService(d *grpc.ServiceDesc, _ any) {
	*r = append(*r, d.ServiceName)
}

// Every service that a member of the core has is also one of the servers that pass calls on.
func TestServersPassOnEveryService(t *testing.T) {
	var served registered
	(&etcdapi.Services{Watch: pb.UnimplementedWatchServer{}, Health: health.NewServer()}).Register(
		&served)
	var passedOn []string
	for _, d := range etcdServices {
		passedOn = append(passedOn, d.ServiceName)
	}
	slices.Sort(served)
	slices.Sort(passedOn)
	if !slices.Equal(served, passedOn) {
		t.Errorf("a member serves\n%q\nand etcdServices has\n%q", served, passedOn)
	}
}
