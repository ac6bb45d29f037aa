package embedded

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdkeyspaces"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// forgedTest is a server with the keyspace mine, of two partitions, which the user owner may read
// and write, and reader may read; and theirs, which reader may read, write and administer.
type forgedTest struct {
	t    *testing.T
	at   string
	conn map[string]*client.BatchConn // by user
	// tokens are the users'.
	tokens map[string]string
	// place are the partitions that have a key, and keyspaces the ids.
	place     map[string]admin.PartitionInfo
	keyspaces map[string]uint32
	sequence  uint64
}

func newForgedTest(t *testing.T) *forgedTest {
	t.Helper()
	ctx := t.Context()
	c := onAllAddresses(t, "")
	s := running(t, c)
	if err := errors.Join(s.WaitReady(ctx), s.etcd.waitCoordination(ctx)); err != nil {
		t.Fatal(err)
	}
	f := &forgedTest{t: t, at: c.Advertise, conn: map[string]*client.BatchConn{},
		tokens: map[string]string{},
		place:  map[string]admin.PartitionInfo{}, keyspaces: map[string]uint32{}}
	operator := f.open()
	all := steps{t: t}
	all.do(operator.CreateKeyspace(ctx, "mine", kv.Range([]byte("m")), kv.Replicas(1)))
	all.do(operator.CreateKeyspace(ctx, "theirs", kv.Range(), kv.Replicas(1)))
	etcd := prepare(t, f.at)
	api := coordpb.NewPermissionsClient(etcd.ActiveConnection())
	for _, user := range []string{"owner", "reader"} {
		all.do(etcd.UserAdd(ctx, user, "secret"))
		all.do(etcd.RoleAdd(ctx, user))
		all.do(etcd.UserGrantRole(ctx, user, user))
	}
	grant := func(user, keyspace string, rights *coordpb.Rights) {
		all.do(api.Grant(ctx, &coordpb.GrantRequest{Role: user, Keys: whole(keyspace), Rights: rights}))
	}
	grant("owner", "mine", &coordpb.Rights{Read: true, Write: true})
	grant("reader", "mine", &coordpb.Rights{Read: true})
	grant("reader", "theirs", &coordpb.Rights{Read: true, Write: true, Admin: true})
	all.check()
	names, err := etcdkeyspaces.Keyspaces{Core: s.core, Cluster: s.cluster.Load()}.Names(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id, name := range names {
		f.keyspaces[name] = uint32(id)
	}
	for name, keyspace := range map[string]string{"a": "mine", "z": "mine", "theirs": "theirs"} {
		awaitTrue(t, "the partitions are led", func() bool {
			all, err := admin.New(operator).Partitions(ctx, keyspace)
			if err != nil || len(all) == 0 {
				return false
			}
			f.place[name] = all[0]
			if name == "z" {
				f.place[name] = all[len(all)-1]
			}
			return f.place[name].Term != 0
		})
	}
	all.do(etcd.AuthEnable(ctx))
	all.check()
	heard(t, s)
	for i, user := range []string{"root", "owner", "reader"} {
		f.conn[user] = f.connect(user, uint64(i+1))
	}
	return f
}

// open opens the SDK.
func (f *forgedTest) open(options ...kv.Option) *kv.Client {
	f.t.Helper()
	client, err := kv.Open(f.t.Context(), []string{f.at}, options...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { client.Close() })
	return client
}

// connect is a user's connection to the public port, which sends whatever it is given.
func (f *forgedTest) connect(user string, id uint64) *client.BatchConn {
	f.t.Helper()
	r, err := etcdClient(f.t, nil, f.at).Authenticate(f.t.Context(), user, "secret")
	if err != nil {
		f.t.Fatal(err)
	}
	f.tokens[user] = r.Token
	d := client.NewDialer(client.DialerConfig{})
	b := client.NewBatchConn(client.BatchConfig{Dialer: d, Address: f.at, Client: id,
		Stream: func() uint64 { return 1 },
		Token:  func(context.Context) string { return r.Token }})
	f.t.Cleanup(func() { b.Close(); d.Close() })
	return b
}

// ask sends a user's request to a partition; it waits until the server has heard of the token.
func (f *forgedTest) ask(user, place string, q *kvpb.Request) *kvpb.Response {
	f.t.Helper()
	f.sequence++
	p := f.place[place]
	q.Partition, q.Generation, q.Term, q.Sequence = p.ID, p.Generation, p.Term, f.sequence
	var r *kvpb.Response
	awaitTrue(f.t, "the server knows the user", func() (known bool) {
		var err error
		if r, err = f.conn[user].Do(f.t.Context(), q); err != nil {
			f.t.Fatal(err)
		}
		return r.Error.GetCode() != kvpb.ErrorCode_ACCESS_UNKNOWN
	})
	return r
}

// good is ask of a request that is to be done.
func (f *forgedTest) good(user, place string, q *kvpb.Request) *kvpb.Response {
	f.t.Helper()
	r := f.ask(user, place, q)
	if r.Error != nil {
		f.t.Fatalf("%s at %s: %v", user, place, r.Error)
	}
	return r
}

// A user who may read a keyspace knows everything of another one's transaction there: its id, its
// anchor, its times, its keys. No request that names it decides it, holds it up, ends its locks, or
// shows what it is about to write, be it as it should be, or anchored where that user may write.
func TestForgedRequestsDecideNothing(t *testing.T) {
	f := newForgedTest(t)
	now := f.good("owner", "a",
		&kvpb.Request{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}).Now
	of := &kvpb.Transaction{Id: bytes.Repeat([]byte{7}, 16), Begun: now, Started: now,
		Keyspace: f.keyspaces["mine"], Anchor: []byte("a1")}
	commit := now
	for place, key := range map[string]string{"a": "a1", "z": "z1"} {
		r := f.good("owner", place, &kvpb.Request{Command: &kvpb.Request_Prepare{
			Prepare: &kvpb.PrepareRequest{Transaction: of, Mutations: []*kvpb.Mutation{
				{Key: []byte(key), Value: []byte("provisional")}}}}})
		if at := r.GetPrepare().Prepared; wire.FromTimestamp(commit).Less(wire.FromTimestamp(at)) {
			commit = at
		}
	}
	beat := func() {
		f.good("owner", "a", &kvpb.Request{Command: &kvpb.Request_HeartbeatTransaction{
			HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{Transaction: of}}})
	}
	beat()

	named := map[protoreflect.Name]bool{}
	for _, x := range f.forgeries(of, commit) {
		m := x.q.ProtoReflect()
		named[m.WhichOneof(m.Descriptor().Oneofs().ByName("command")).Name()] = true
		r := f.ask("reader", x.place, x.q)
		if denied := r.Error.GetCode() == kvpb.ErrorCode_PERMISSION_DENIED; denied == x.permitted {
			t.Errorf("%s: %v", x.what, r)
		}
		if sent, err := proto.Marshal(r); err != nil || bytes.Contains(sent, []byte("provisional")) {
			t.Errorf("%s: it is told what is not committed: %v, %v", x.what, r, err)
		}
		beat() // the machine may be slow
		f.stands(x.what, of)
	}
	commands := (&kvpb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for i := range commands.Len() {
		if c := commands.Get(i); namesTransaction(c.Message(), nil) != named[c.Name()] {
			t.Errorf("%s names a transaction: %t; it is forged: %t", c.Name(), !named[c.Name()],
				named[c.Name()])
		}
	}

	r := f.good("owner", "a", &kvpb.Request{Command: &kvpb.Request_EndTransaction{
		EndTransaction: &kvpb.EndTransactionRequest{Transaction: of, Commit: true,
			CommitTimestamp: commit, Participants: []*kvpb.Participant{
				{Keyspace: of.Keyspace, Key: []byte("a1")}, {Keyspace: of.Keyspace, Key: []byte("z1")}}}}})
	if s := r.GetEndTransaction().Status; s.State != kvpb.TransactionState_COMMITTED ||
		!proto.Equal(s.Timestamp, commit) {
		t.Fatalf("the owner's transaction: %v", s)
	}
	mine := f.open(kv.Token(func(context.Context) (string, error) {
		return f.tokens["owner"], nil
	})).Keyspace("mine")
	for _, key := range []string{"a1", "z1"} {
		if p, err := mine.Get(t.Context(), []byte(key)); err != nil ||
			string(p.Value) != "provisional" {
			t.Errorf("%s: %q, %v", key, p.Value, err)
		}
	}
}

// stands checks that the transaction is pending, and has its lock in each partition.
func (f *forgedTest) stands(after string, of *kvpb.Transaction) {
	f.t.Helper()
	for _, place := range []string{"a", "z"} {
		all := f.good("root", place, &kvpb.Request{Command: &kvpb.Request_InspectTransactions{
			InspectTransactions: &kvpb.InspectTransactionsRequest{}}}).
			GetInspectTransactions().Transactions
		if len(all) != 1 || !proto.Equal(all[0].Transaction, of) || all[0].Intents != 1 ||
			all[0].Record.GetState() != kvpb.TransactionState_PENDING ||
			all[0].Record.GetTimestamp() != nil {
			f.t.Errorf("after %s, at %s: %v", after, place, all)
		}
	}
}

// namesTransaction says whether a message has anything that names a transaction, at any depth.
func namesTransaction(m protoreflect.MessageDescriptor, seen []protoreflect.FullName) bool {
	if m.FullName() == (&kvpb.Transaction{}).ProtoReflect().Descriptor().FullName() {
		return true
	}
	if slices.Contains(seen, m.FullName()) {
		return false
	}
	seen = append(seen, m.FullName())
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		if field.Name() == "transaction" ||
			field.Message() != nil && namesTransaction(field.Message(), seen) {
			return true
		}
	}
	return false
}
