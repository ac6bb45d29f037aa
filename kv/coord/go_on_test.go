package coord

import (
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A client goes on with the members: with all that a server names which is none, and with those of
// its own addresses that are members', if a member answers and any is.
func TestGoOn(t *testing.T) {
	member := func(id uint64, urls ...string) *pb.Member {
		return &pb.Member{ID: id, ClientURLs: urls}
	}
	given := []string{"a:1", "http://n:1", "b:1"}
	for _, c := range []struct {
		name string
		list []*pb.Member
		want []string
	}{
		{"a data node", []*pb.Member{member(0, "http://a:1"), member(0, "http://c:1")},
			[]string{"http://a:1", "http://c:1"}},
		{"a member", []*pb.Member{member(1, "http://a:1"), member(2, "http://b:1")},
			[]string{"a:1", "b:1"}},
		{"a member that is known by other names", []*pb.Member{member(1, "http://10.0.0.1:1")}, given},
		{"a member that has not started", []*pb.Member{member(1)}, given},
		{"nobody", nil, given},
	} {
		if got := goOn(given, c.list); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
