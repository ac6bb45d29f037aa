package console

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Cluster is the part of *admin.Client that the console uses. Its methods may be called from any
// number of goroutines.
type Cluster interface {
	Status(context.Context) (admin.Status, error)
	Nodes(context.Context) ([]admin.NodeInfo, error)
	Keyspaces(context.Context) ([]admin.KeyspaceInfo, error)
	Partitions(ctx context.Context, keyspace string) ([]admin.PartitionInfo, error)
	LoadHistories(context.Context, []admin.NodeInfo,
		func(node uint64) admin.LoadHistorySince) []admin.LoadHistory
	Operators(context.Context) ([]admin.OperatorInfo, error)
	CoreHealth(context.Context) (admin.Core, error)
	Placement(context.Context) (admin.PlacementSettings, error)
	Upgrade(context.Context) (admin.Upgrade, error)
	Events(ctx context.Context, partition, node uint64, limit int) ([]admin.Event, error)
	WhyPartition(context.Context, uint64) (admin.Explanation, error)
	WhyNode(context.Context, uint64) (admin.Explanation, error)
	WhyKeyspace(context.Context, string) (admin.Explanation, error)
	Transactions(ctx context.Context, keyspace string, most int) ([]admin.OpenTransaction, bool,
		error)
	SlowRequests(context.Context, admin.SlowQuery) (admin.SlowRequests, error)
	Backups(context.Context) ([]admin.BackupInfo, error)
	BackupSchedules(context.Context) ([]admin.BackupScheduleInfo, error)

	PausePlacement(ctx context.Context, paused bool) (admin.PlacementSettings, error)
	SetNodeStatus(context.Context, uint64, admin.NodeStatus) (admin.NodeProgress, error)
	CancelOperator(ctx context.Context, partition uint64) error
	TransferLeader(ctx context.Context, partition, node uint64) error
	AbortTransaction(ctx context.Context, id string) (admin.TransactionEnd, error)

	// Etcd returns a client of the etcd API, with the same user. The Cluster closes it.
	Etcd(context.Context) (*clientv3.Client, error)
	// Close ends all calls.
	Close() error
}

// Dialing configures how the console reaches the servers of its own cluster.
type Dialing struct {
	// Endpoints lists addresses of servers, this server's first.
	Endpoints func() []string
	// TLS returns the present configuration of connections, or nil for plain text.
	TLS func() *tls.Config
	// Dial, if not nil, replaces TCP.
	Dial   func(ctx context.Context, address string) (net.Conn, error)
	Logger *slog.Logger
}

// Open connects to the cluster as a user. An empty name means no user.
func (d Dialing) Open(ctx context.Context, user, password string) (Cluster, error) {
	options := []kv.Option{kv.RequestTimeout(asking)}
	if d.Logger != nil {
		options = append(options, kv.Logger(d.Logger))
	}
	if d.Dial != nil {
		options = append(options, kv.Dialer(d.Dial))
	}
	if d.TLS != nil {
		options = append(options, kv.TLS(d.TLS()))
	}
	if user != "" {
		options = append(options, kv.User(user, kv.Password(password)))
	}
	client, err := kv.Open(ctx, d.Endpoints(), options...)
	if err != nil {
		return nil, err
	}
	return &connected{Client: admin.New(client), kv: client, dialing: d, user: user,
		password: password, making: make(chan struct{}, 1)}, nil
}

// connected is a Cluster that is reached over the network.
type connected struct {
	*admin.Client
	kv             *kv.Client
	dialing        Dialing
	user, password string

	// making is held while coordination is created, used or closed.
	making       chan struct{}
	coordination *coord.Client
	closed       bool
}

// Etcd implements Cluster. The client is created at the first call.
func (c *connected) Etcd(ctx context.Context) (*clientv3.Client, error) {
	select {
	case c.making <- struct{}{}:
		defer func() { <-c.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.closed {
		return nil, errors.New("the connection to the cluster was closed")
	}
	if c.coordination == nil {
		options := []coord.Option{}
		if c.dialing.Dial != nil {
			options = append(options, coord.Dialer(c.dialing.Dial))
		}
		if c.dialing.TLS != nil {
			options = append(options, coord.TLS(c.dialing.TLS()))
		}
		if c.user != "" {
			options = append(options, coord.User(c.user, c.password))
		}
		client, err := coord.Connect(ctx, c.dialing.Endpoints(), options...)
		if err != nil {
			return nil, err
		}
		c.coordination = client
	}
	return c.coordination.Etcd(), nil
}

// Close implements Cluster.
func (c *connected) Close() error {
	err := c.kv.Close()
	c.making <- struct{}{}
	defer func() { <-c.making }()
	c.closed = true
	if c.coordination != nil {
		err = errors.Join(err, c.coordination.Close())
		c.coordination = nil
	}
	return err
}
