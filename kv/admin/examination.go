package admin

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// Examination is a server's report about itself, its machine and its links. A number is 0 if the
// system does not provide it.
type Examination struct {
	Address string
	Cluster uint64
	// Node and Member are the data node and the member of the core that run in the server. An id is 0
	// if there is none.
	Node, Member uint64
	Version      string
	// Platform is the operating system, the architecture and the version of Go.
	Platform string
	Started  time.Time
	// NotReady has the reasons why the server is not ready, one sentence each. It is empty if the
	// server is ready.
	NotReady     []string
	Processor    ProcessorReport
	Memory       MemoryReport
	Files        FileReport
	Clock        ClockReport
	Disks        []DiskReport
	Links        []Link
	Certificates []Certificate
	Settings     []Setting
}

// ProcessorReport describes the processor time of a server. Shares are between 0 and 1.
type ProcessorReport struct {
	// Count is the number of the machine's processors. Limit is the number of processors that the
	// process may use at a time, and Used the number that it uses, averaged over the last minute.
	Count       int
	Limit, Used float64
	// Wait has the same meaning as NodeInfo.ProcessorWait.
	Wait time.Duration
	// Throttled is the share of the periods in which the process's control group was stopped because
	// it had used its limit. Pressure is the share of the last ten seconds in which some work of the
	// machine waited for a processor.
	Throttled, Pressure float64
}

// MemoryReport describes the memory of a server, in bytes.
type MemoryReport struct {
	Machine, Available uint64
	// GroupLimit is the limit of the process's control group. Limit is the server's own limit. Used is
	// the memory that the process uses.
	GroupLimit, Limit, Used uint64
	// Pressure is the share of the last ten seconds in which all work of the machine waited for
	// memory.
	Pressure float64
}

// FileReport has the number of files that a process has open, and its limit.
type FileReport struct{ Limit, Open uint64 }

// ClockReport describes a server's clock.
type ClockReport struct {
	Time time.Time
	// Distrust is the reason why the server does not serve because of its clock. It is empty if the
	// server trusts its clock.
	Distrust string
	// MaxOffset is the maximum allowed difference between the clocks of the cluster.
	MaxOffset time.Duration
}

// DiskReport describes the disk of a part of a server. Sizes are in bytes.
type DiskReport struct {
	// Part is "node" or "core".
	Part, Directory string
	// Size and Free are those of the file system. If less than Reserve is free, writes of data are
	// refused (Full). Used is the space that the part uses.
	Size, Free, Reserve, Used uint64
	Full                      bool
	// Slow and LogSync have the same meanings as in NodeInfo. Writing is the time for which the
	// present write to the log has been under way.
	Slow             bool
	LogSync, Writing time.Duration
	// CompactionDebt is the number of bytes that compactions still have to rewrite. LevelZeroFiles is
	// the number of files in the youngest level.
	CompactionDebt uint64
	LevelZeroFiles int
	// Failure is the reason why the part no longer writes. It is empty if the part writes.
	Failure string
}

// Link is the network link from a server to another one, measured with some messages.
type Link struct {
	Address string
	// RoundTrip is the median of the round trips. Ahead is the amount by which the other server's
	// clock is ahead.
	RoundTrip, Ahead time.Duration
	// Failure is the reason why there was no answer. It is empty if there was one.
	Failure string
}

// Certificate describes a certificate in a file of a server.
type Certificate struct {
	// Kind is "server", "clients' authority" or "servers' authority".
	File, Kind, Subject string
	NotBefore, NotAfter time.Time
	// Failure is the reason why the file cannot be used. It is empty if the file can be used.
	Failure string
}

// Setting is a flag of a server, without dashes, with its value.
type Setting struct {
	Name, Value string
	// Same says that all servers of a cluster should have the same value.
	Same bool
}

func examination(x *diagnosispb.Examination) Examination {
	permille := func(n uint32) float64 { return float64(min(n, 1000)) / 1000 }
	p, m := x.GetProcessor(), x.GetMemory()
	e := Examination{
		Address: x.GetAddress(), Cluster: x.GetCluster(), Node: x.GetNode(), Member: x.GetMember(),
		Version: x.GetVersion(), Platform: x.GetPlatform(), Started: time.Unix(x.GetStartedUnix(), 0),
		NotReady: x.GetNotReady(),
		Processor: ProcessorReport{Count: int(p.GetCount()), Limit: float64(p.GetLimitMicro()) / 1e6,
			Used: float64(p.GetUsedMicro()) / 1e6, Wait: micros(p.GetWaitMicros()),
			Throttled: permille(p.GetThrottledPermille()),
			Pressure:  permille(p.GetPressurePermille())},
		Memory: MemoryReport{Machine: m.GetMachine(), Available: m.GetAvailable(),
			GroupLimit: m.GetGroupLimit(), Limit: m.GetLimit(), Used: m.GetUsed(),
			Pressure: permille(m.GetPressurePermille())},
		Files: FileReport{Limit: x.GetFiles().GetLimit(), Open: x.GetFiles().GetOpen()},
		Clock: ClockReport{Time: time.Unix(0, int64(x.GetClock().GetUnixNanos())),
			Distrust:  x.GetClock().GetDistrust(),
			MaxOffset: micros(x.GetClock().GetMaxOffsetMicros())},
	}
	for _, d := range x.GetDisks() {
		e.Disks = append(e.Disks, DiskReport{Part: d.Part, Directory: d.Directory, Size: d.Size,
			Free: d.Free, Reserve: d.Reserve, Used: d.Used, Full: d.Full, Slow: d.Slow,
			LogSync: micros(d.SyncMicros), Writing: micros(d.WritingMicros),
			CompactionDebt: d.CompactionDebt, LevelZeroFiles: int(min(d.LevelZeroFiles, 1<<30)),
			Failure: d.Failure})
	}
	for _, l := range x.GetLinks() {
		e.Links = append(e.Links, Link{Address: l.Address, RoundTrip: micros(l.RoundTripMicros),
			Ahead: time.Duration(l.AheadNanos), Failure: l.Failure})
	}
	for _, c := range x.GetCertificates() {
		e.Certificates = append(e.Certificates, Certificate{File: c.File, Kind: c.Kind,
			Subject: c.Subject, NotBefore: time.Unix(c.NotBeforeUnix, 0),
			NotAfter: time.Unix(c.NotAfterUnix, 0), Failure: c.Failure})
	}
	for _, s := range x.GetSettings() {
		e.Settings = append(e.Settings, Setting{Name: s.Name, Value: s.Value, Same: s.Same})
	}
	return e
}

// Examine asks the server at an address to examine itself, its machine, and its links to the
// servers at the addresses in others. An empty address stands for any server. The user needs the
// role root.
func (c *Client) Examine(ctx context.Context, server string, others []string) (Examination, error) {
	if len(others) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = patient(ctx, c, linksTime)
		defer cancel()
	}
	r, err := ask(ctx, c, "examine "+server, "", clusterpb.ClusterClient.Examine,
		&diagnosispb.ExamineRequest{Server: server, Others: others})
	if err != nil {
		return Examination{}, err
	}
	return examination(r), nil
}

// linksTime is the time that a server may take to measure its links. Links without answers take the
// longest.
const linksTime = 15 * time.Second

// patient returns the context of a call over which a server may take that long in addition to the
// request timeout.
func patient(ctx context.Context, c *Client, longer time.Duration) (context.Context,
	context.CancelFunc) {
	ctx, cancel := c.conn.BoundLonger(ctx, longer)
	return route.Patient(ctx, longer), cancel
}

// Item is a piece of data that a server collects for a report of a fault.
type Item int

// The items: the metrics as text; the stacks of goroutines, without arguments; profiles of the
// memory in use and of the processor time, for go tool pprof; and the last lines of the log,
// without keys of users.
const (
	ItemMetrics Item = iota + 1
	ItemGoroutines
	ItemHeap
	ItemProcessor
	ItemLog
)

// wireItems maps the items to the values in messages.
var wireItems = map[Item]diagnosispb.Item{ItemMetrics: diagnosispb.Item_METRICS,
	ItemGoroutines: diagnosispb.Item_GOROUTINES, ItemHeap: diagnosispb.Item_HEAP,
	ItemProcessor: diagnosispb.Item_PROCESSOR, ItemLog: diagnosispb.Item_LOG}

// usualSeconds is the duration of a profile for which no duration is given. collectTime is the time
// that a server may take for an item in addition to the duration.
const (
	usualSeconds = 5
	collectTime  = 5 * time.Second
)

// maxItem limits the size of an item after decompression.
const maxItem = 256 << 20

// Collect asks the server at an address to collect an item. A profile of the processor time takes
// the given number of seconds, 1 to 30, in addition to the request timeout; 0 means 5. The other
// items are collected at once. The user needs the role root.
func (c *Client) Collect(ctx context.Context, server string, item Item,
	seconds int) ([]byte, error) {
	op := "collect from " + server
	if seconds < 0 || seconds > 30 {
		return nil, invalid(op, "", "processor time is measured for 1 to 30 seconds")
	}
	if item == ItemProcessor {
		var cancel context.CancelFunc
		ctx, cancel = patient(ctx, c, time.Duration(cmp.Or(seconds, usualSeconds))*time.Second+
			collectTime)
		defer cancel()
	}
	r, err := ask(ctx, c, op, "", clusterpb.ClusterClient.Collect, &diagnosispb.CollectRequest{
		Server: server, Item: wireItems[item], Seconds: uint32(seconds)})
	if err != nil {
		return nil, err
	}
	content, err := unpack(r.GetContent())
	if err != nil {
		return nil, c.conn.Wrap(op, "", fmt.Errorf("the content is damaged: %w", err))
	}
	return content, nil
}

func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxItem))
}
