package driver

import (
	"context"
	"errors"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd is a client of the coordination service for one Drive of a workload. It reports the outcome
// of every call.
type Etcd struct {
	sdk     *clientv3.Client
	reports reports
}

// ConnectEtcd opens a client of the coordination service for a workload. The caller closes the
// client with hangUp.
func (r *Run) ConnectEtcd(ctx context.Context, workload string) (e *Etcd, hangUp func(),
	err error) {
	if r.OpenEtcd == nil {
		return nil, nil, errors.New("this cluster has no coordination service")
	}
	sdk, hangUp, err := r.OpenEtcd(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &Etcd{sdk, reports{run: r, workload: workload}}, hangUp, nil
}

// SDK is etcd's client.
func (e *Etcd) SDK() *clientv3.Client { return e.sdk }

// Report reports the start of an operation that does not use Do. When the operation is over, the
// caller calls ended with its error.
func (e *Etcd) Report(ctx context.Context, kind string) (ended func(error)) {
	return e.reports.begin(ctx, kind).end
}

// Do makes a call. It retries the call if the server is no member of the core: the next server may
// be a member, because a client uses one endpoint after the other. kind is the call's name in the
// table.
func (e *Etcd) Do(ctx context.Context, kind string, call func(context.Context) error) error {
	report := e.reports.begin(ctx, kind)
	for attempt := 1; ; attempt++ {
		err := call(ctx)
		if !noMember(err) || !sleep(ctx, nil, 10*time.Millisecond) {
			report.endAfter(attempt, err)
			return err
		}
	}
}

// noMember reports whether a server refused a call because the server is no member of the
// coordination store.
func noMember(err error) bool {
	return err != nil && strings.Contains(err.Error(), "etcdserver: this server")
}
