package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// quotaFlags has the flags for the quotas of a keyspace.
type quotaFlags struct {
	bytes, throughput argument.Size
	requests          uint64
	flags             *pflag.FlagSet
}

// register adds the flags. usual is the default as the help texts show it.
func (f *quotaFlags) register(cmd *cobra.Command, usual string) {
	f.flags = cmd.Flags()
	f.flags.Var(&f.bytes, "quota-bytes", "bytes that the keyspace may hold, such as 10GiB, "+
		"with its history and counted once; 0: no quota (default: "+usual+")")
	f.flags.Uint64Var(&f.requests, "quota-requests", 0,
		"requests of clients a second, to all nodes together; 0: no quota (default: "+usual+")")
	f.flags.Var(&f.throughput, "quota-throughput", "bytes of requests and answers a second, as "+
		"10MiB, of all nodes together; 0: no quota (default: "+usual+")")
}

// options returns the options of the given flags.
func (f *quotaFlags) options() (options []kv.QuotaOption, err error) {
	if f.flags.Changed("quota-bytes") {
		options = append(options, kv.QuotaBytes(uint64(f.bytes)))
	}
	if f.flags.Changed("quota-requests") {
		options = append(options, kv.QuotaRequests(f.requests))
	}
	if f.flags.Changed("quota-throughput") {
		if f.throughput != 0 && f.throughput < keys.MinQuotaThroughput {
			return nil, exit.Usagef("--quota-throughput %d: it is at least 1KiB, or 0 for no quota",
				uint64(f.throughput))
		}
		options = append(options, kv.QuotaThroughput(uint64(f.throughput)))
	}
	return options, nil
}

// quotaColumns has columns for programs. People see the use of a quota in the quota's own column.
var quotaColumns = []output.Column{
	{Name: "quota bytes", Number: true}, {Name: "quota requests", Number: true},
	{Name: "quota throughput", Number: true},
	{Name: "used bytes", Number: true, Programs: true},
	{Name: "used requests", Number: true, Programs: true},
	{Name: "used throughput", Number: true, Programs: true},
}

func quotaCells(info admin.KeyspaceInfo) []any {
	used := []any{nil, nil, nil}
	if u := info.Used; u != nil {
		used = []any{output.Size(u.Bytes), u.Requests, output.Size(u.Throughput)}
	}
	q := info.Quotas
	return append([]any{
		quotaCell(info, q.Bytes, output.Size(q.Bytes), func(u *admin.Quotas) uint64 { return u.Bytes }),
		quotaCell(info, q.Requests, q.Requests, func(u *admin.Quotas) uint64 { return u.Requests }),
		quotaCell(info, q.Throughput, output.Size(q.Throughput),
			func(u *admin.Quotas) uint64 { return u.Throughput }),
	}, used...)
}

// quotaCell returns the cell of a quota. For people, the cell also shows how much of the quota is
// used. shown is the quota in the form for output.
func quotaCell(info admin.KeyspaceInfo, quota uint64, shown any,
	used func(*admin.Quotas) uint64) any {
	if quota == 0 {
		return nil
	}
	if info.Used == nil {
		return shown
	}
	return output.Cell{Programs: shown, People: fmt.Sprintf("%v, %.0f %% used", shown,
		100*float64(used(info.Used))/float64(quota))}
}
