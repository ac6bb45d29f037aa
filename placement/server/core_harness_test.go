package server

import (
	"context"
	"errors"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// offers makes the server at an address one that can be added, of this version.
func (c *core) offers(address string, server uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hellos[address] = &clusterpb.BootstrapHello{Server: server, Address: address, Offers: true,
		Changes: true, Commands: store.NewestFormat}
}

// ask has the core answer something within a time.
func ask(client *coreclient.Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := client.ListNodes(ctx, &clusterpb.ListNodesRequest{})
	return err
}

// serves waits until the core answers.
func (c *core) serves(client *coreclient.Client) {
	c.t.Helper()
	if err := ask(client, time.Minute); err != nil {
		c.t.Fatal(err)
	}
}

// change asks for a change of the members; an empty address is of no server.
func (c *core) change(client *coreclient.Client, add, remove string) error {
	_, err := client.ChangeCore(c.t.Context(), &clusterpb.ChangeCoreRequest{Add: add, Remove: remove})
	return err
}

// mustChange changes the members, as often as it has to be said, and waits until that is done.
func (c *core) mustChange(client *coreclient.Client, add, remove string) {
	c.t.Helper()
	if err := c.change(client, add, remove); err != nil {
		c.t.Fatalf("add %q, remove %q: %v", add, remove, err)
	}
	c.await("the change is done", func() bool {
		list, err := client.ListCore(c.t.Context(), &clusterpb.ListCoreRequest{})
		return err == nil && list.Change == nil
	})
}

// configuration is that of the leader's store.
func (c *core) configuration() string {
	c.mu.Lock()
	leader := c.leader
	c.mu.Unlock()
	now := leader.store.Configuration()
	return now.String()
}

// mustBe fails the test if the leader's store has another configuration.
func (c *core) mustBe(configuration string) {
	c.t.Helper()
	if got := c.configuration(); got != configuration {
		c.t.Fatalf("the configuration is %s, want %s", got, configuration)
	}
}

// refused fails the test unless err is FAILED_PRECONDITION with the text.
func (c *core) refused(err error, text string) {
	c.t.Helper()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), text) {
		c.t.Errorf("%v; want a refusal with %q", err, text)
	}
}

// says has the member at an address run a version that knows so much.
func (c *core) says(address string, change func(*clusterpb.BootstrapHello)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.hellos[address])
}

func newest(h *clusterpb.BootstrapHello) { h.Commands, h.Learners = store.NewestFormat, true }

func older(h *clusterpb.BootstrapHello) { h.Commands, h.Learners = 0, false }

// upgraded has all members run the newest version, and waits until they serve and the leader knows.
func (c *core) upgraded(client *coreclient.Client) {
	c.t.Helper()
	c.serves(client)
	for _, address := range c.addresses() {
		c.says(address, newest)
	}
	c.knowsAll()
}

// knowsAll waits until the leader knows that all members know of alarms.
func (c *core) knowsAll() {
	c.t.Helper()
	c.await("all members know of alarms", c.raises)
}

// answers has a member answer, or not.
func (c *core) answers(replica uint64, address string, h *clusterpb.BootstrapHello) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent[replica] = h == nil
	if h == nil {
		delete(c.hellos, address)
	} else {
		c.hellos[address] = h
	}
}

// neverAnswered has a member silent of which the first member has not heard since it was started.
func (c *core) neverAnswered(replica uint64, address string) {
	c.answers(replica, address, nil)
	synctest.Wait() // what was asked before is answered
	c.members[0].server.Membership().Versions().Forget(replica)
}

// memberOf is the member of a replica id; nil if there is none.
func memberOf(m *storepb.Members, replica uint64) *storepb.Member {
	for _, x := range m.GetMembers() {
		if x.Replica == replica {
			return x
		}
	}
	return nil
}

// raises says whether the leader raises an alarm; it is ended.
func (c *core) raises() bool {
	c.t.Helper()
	leader := c.members[0].store
	alarm := &storepb.Alarm{Member: 1, Type: storepb.Alarm_NO_SPACE}
	_, err := leader.Do(c.t.Context(), store.RaiseAlarm(alarm))
	if err != nil {
		if !errors.Is(err, store.ErrOldMembers) {
			c.t.Fatal(err)
		}
		return false
	}
	if _, err := leader.Do(c.t.Context(), store.EndAlarm(alarm)); err != nil {
		c.t.Fatal(err)
	}
	return true
}

// weighed is what the first member has found that all members know, and as of which members.
func (c *core) weighed() (format uint32, members uint64) {
	h := &clusterpb.BootstrapHello{}
	c.members[0].server.membership.Versions().Say(h)
	return h.MembersCommands, h.MembersVersion
}

// knowsUpTo has the member at an address know commands up to a format.
func (c *core) knowsUpTo(address string, format uint32) {
	c.says(address, func(h *clusterpb.BootstrapHello) { h.Commands = format })
}

// record records a change that adds a server, as a leader does that asks for no version.
func (c *core) record(address string, server uint64) {
	c.t.Helper()
	goal := meta.Encode(&serverpb.CoreGoal{Id: 1, AddServer: server, AddAddress: address})
	c.write(store.Put([]byte(meta.CoreGoalKey), goal))
	c.members[0].server.Membership().Poke()
}

// write does an operation on the core's own store.
func (c *core) write(op *storepb.Op) {
	c.t.Helper()
	if _, err := c.members[0].store.Do(c.t.Context(),
		store.If(nil, []*storepb.Op{op}, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// waitsFor is what the change that is under way waits for.
func (c *core) waitsFor(client *coreclient.Client) string {
	list, err := client.ListCore(c.t.Context(), &clusterpb.ListCoreRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Change.GetWaitsFor()
}
