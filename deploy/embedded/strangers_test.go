package embedded

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// marker stands in keys of users. No stranger is to see it.
const marker = "s3cr3t"

// While authentication is enabled, no call of the service Cluster shows a key to those who may
// neither read nor write it: neither to clients without a user nor to users without rights for the
// keyspace, at any server. TestTableIsForUsers has the streams that clients route by.
func TestStrangersSeeNoKeys(t *testing.T) {
	cluster := startEtcd(t, nil)
	ctx, at := t.Context(), cluster.Endpoints()
	etcd := etcdClient(t, nil, at[:3]...)
	operator := openAt(t, at[0])
	secrets, err := operator.CreateKeyspace(ctx, "secrets",
		kv.Range([]byte(marker+"/a"), []byte(marker+"/m")), kv.Replicas(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.CreateKeyspace(ctx, "other", kv.Range(), kv.Replicas(1)); err != nil {
		t.Fatal(err)
	}
	s := steps{t: t}
	version, err := secrets.Put(ctx, []byte(marker+"/b"), []byte(marker))
	s.do(nil, err)
	s.do(secrets.SetConsumer(ctx, "c", version, kv.Prefix([]byte(marker))))
	split, err := admin.New(operator).SplitPartition(ctx, "secrets", []byte(marker+"/f"))
	s.do(nil, err)
	api := coordpb.NewPermissionsClient(etcd.ActiveConnection())
	s.do(etcd.UserAdd(ctx, "root", "secret"))
	s.do(etcd.UserGrantRole(ctx, "root", "root"))
	for _, user := range []string{"nobody", "elsewhere", "reader", "writer", "part"} {
		s.do(etcd.UserAdd(ctx, user, "pw"))
	}
	for role, grant := range map[string]*coordpb.GrantRequest{
		"elsewhere": {Keys: whole("other"), Rights: &coordpb.Rights{Read: true, Write: true}},
		"reader":    {Keys: whole("secrets"), Rights: &coordpb.Rights{Read: true}},
		"writer":    {Keys: whole("secrets"), Rights: &coordpb.Rights{Write: true}},
		"part": {Keys: &coordpb.KeyspaceRange{Keyspace: "secrets", Start: []byte(marker + "/e"),
			End: []byte(marker + "/g")}, Rights: &coordpb.Rights{Read: true}},
	} {
		grant.Role = role
		s.do(etcd.RoleAdd(ctx, role))
		s.do(api.Grant(ctx, grant))
		s.do(etcd.UserGrantRole(ctx, role, role))
	}
	s.check()
	awaitTrue(t, "the split is done", func() bool {
		events, err := admin.New(operator).Events(ctx, split.Partition, 0, 10)
		return err == nil && len(events) > 0 && len(events[0].SplitAt) > 0
	})
	s.do(etcd.AuthEnable(ctx))
	s.check()
	heard(t, cluster.running()...)
	token := func(user, password string) string {
		t.Helper()
		r, err := etcd.Authenticate(ctx, user, password)
		if err != nil {
			t.Fatal(err)
		}
		return r.Token
	}
	seen := func(endpoint, token string, changes bool) map[string]int {
		return callAll(t, endpoint, token, split.Partition, changes)
	}
	root := token("root", "secret")
	for i, endpoint := range at { // the last is no member of the core
		for who, token := range map[string]string{"nobody": token("nobody", "pw"), "a stranger": "",
			"a liar": "user.1.2", "elsewhere": token("elsewhere", "pw")} {
			for method, count := range seen(endpoint, token, true) {
				if count > 0 {
					t.Errorf("server %d: %s shows keys to %s", i, method, who)
				}
			}
		}
		for who, token := range map[string]string{"root": root, "reader": token("reader", "pw"),
			"writer": token("writer", "pw")} {
			found := seen(endpoint, token, false)
			for _, method := range []string{"ListPartitions", "ListEvents", "ListConsumers",
				"GetConsumer", "Why"} {
				if found[method] == 0 {
					t.Errorf("server %d: %s shows no keys to %s: %v", i, method, who, found)
				}
			}
		}
		if _, err := admin.New(openAt(t, endpoint, kv.Token(func(context.Context) (string, error) {
			return token("nobody", "pw"), nil
		}))).Placement(ctx); err != nil {
			t.Errorf("server %d: a user without rights asks for the settings: %v", i, err)
		}
		bounds, err := admin.New(openAt(t, endpoint, kv.Token(func(context.Context) (string, error) {
			return token("part", "pw"), nil
		}))).Partitions(ctx, "secrets")
		var starts []string
		for _, p := range bounds {
			starts = append(starts, string(p.Start))
			if p.StartHidden {
				starts[len(starts)-1] = "hidden"
			}
		}
		if got := strings.Join(starts, " "); err != nil || got != " hidden hidden "+marker+"/f" {
			t.Errorf("server %d: who may read a part sees the bounds %q, %v", i, got, err)
		}
	}
}

// A keyspace that is created under the name of a dropped one has other users: they are not shown
// the keys in events of the dropped keyspace.
func TestEventsOfADroppedKeyspaceShowNoKeys(t *testing.T) {
	cluster := startEtcd(t, nil)
	ctx, at := t.Context(), cluster.Endpoints()
	etcd := etcdClient(t, nil, at[:3]...)
	operator := openAt(t, at[0])
	s := steps{t: t}
	_, err := operator.CreateKeyspace(ctx, "secrets", kv.Range([]byte(marker+"/a")), kv.Replicas(1))
	s.do(nil, err)
	split, err := admin.New(operator).SplitPartition(ctx, "secrets", []byte(marker+"/f"))
	s.do(nil, err)
	s.check()
	awaitTrue(t, "the split is done", func() bool {
		events, err := admin.New(operator).Events(ctx, split.Partition, 0, 10)
		return err == nil && len(events) > 0 && len(events[0].SplitAt) > 0
	})
	s.do(nil, operator.DropKeyspace(ctx, "secrets"))
	s.check()
	awaitTrue(t, "the keyspace is created anew", func() bool {
		_, err := operator.CreateKeyspace(ctx, "secrets", kv.Range(), kv.Replicas(1))
		return err == nil
	})
	s.do(etcd.UserAdd(ctx, "root", "secret"))
	s.do(etcd.UserGrantRole(ctx, "root", "root"))
	s.do(etcd.UserAdd(ctx, "reader", "pw"))
	s.do(etcd.RoleAdd(ctx, "reader"))
	s.do(coordpb.NewPermissionsClient(etcd.ActiveConnection()).Grant(ctx, &coordpb.GrantRequest{
		Role: "reader", Keys: whole("secrets"), Rights: &coordpb.Rights{Read: true}}))
	s.do(etcd.UserGrantRole(ctx, "reader", "reader"))
	s.do(etcd.AuthEnable(ctx))
	s.check()
	heard(t, cluster.running()...)
	r, err := etcd.Authenticate(ctx, "reader", "pw")
	if err != nil {
		t.Fatal(err)
	}
	if n := callAll(t, at[0], r.Token, split.Partition, false)["ListEvents"]; n > 0 {
		t.Error("a reader of the new keyspace sees keys of the dropped one")
	}
}

// callAll calls everything of the service Cluster that answers once, with what changes something if
// that is wanted, and the list of partitions, and says how often the marker is in what is answered.
func callAll(t *testing.T, endpoint, token string, partition uint64, changes bool) map[string]int {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	found := map[string]int{}
	count := func(method string, text []byte) { found[method] += bytes.Count(text, []byte(marker)) }
	service := clusterpb.File_clusterpb_cluster_proto.Services().ByName("Cluster")
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		shows := slices.ContainsFunc([]string{"List", "Get", "Status", "Why"},
			func(verb string) bool { return strings.HasPrefix(string(m.Name()), verb) })
		if m.IsStreamingServer() || m.IsStreamingClient() || !changes && !shows {
			continue
		}
		for _, about := range []map[protoreflect.Name]any{{}, {"partition": partition},
			{"keyspace": "secrets", "name": "c"}, {"name": "secrets"}, {"node": uint64(1)}} {
			request, answer := newMessage(t, m.Input()), newMessage(t, m.Output())
			if !fill(request, about) {
				continue
			}
			err := conn.Invoke(ctx, "/"+string(service.FullName())+"/"+string(m.Name()), request, answer)
			if err != nil {
				count(string(m.Name()), []byte(err.Error()))
				continue
			}
			text, err := proto.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			count(string(m.Name()), text)
		}
	}
	stream, err := clusterpb.NewClusterClient(conn).ListPartitions(ctx,
		&clusterpb.ListPartitionsRequest{})
	for err == nil {
		var p *clusterpb.PartitionInfo
		if p, err = stream.Recv(); err == nil {
			text, _ := proto.Marshal(p)
			count("ListPartitions", text)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("list partitions: %v", err)
	}
	return found
}

func newMessage(t *testing.T, of protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// fill sets fields, and says whether there are all of them.
func fill(m proto.Message, fields map[protoreflect.Name]any) bool {
	r := m.ProtoReflect()
	for name, value := range fields {
		field := r.Descriptor().Fields().ByName(name)
		if field == nil || field.IsList() ||
			(field.Kind() == protoreflect.StringKind) != (name == "keyspace" || name == "name") ||
			field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.Uint64Kind {
			return false
		}
		r.Set(field, protoreflect.ValueOf(value))
	}
	return true
}
