package examine

import (
	"bytes"
	"compress/gzip"
	"context"
	"runtime/pprof"
	"time"

	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

const (
	// maxContent limits the compressed content of an answer, which must fit into one message.
	maxContent = 3 << 20
	// usualSeconds is the default duration of a measurement of processor time. maxSeconds is the
	// maximum.
	usualSeconds, maxSeconds = 5, 30
)

// Collect implements diagnosispb.DiagnosisServer.
func (e *Examiner) Collect(
	ctx context.Context, r *diagnosispb.CollectRequest,
) (*diagnosispb.CollectResponse, error) {
	if err := e.meant(r.GetCluster(), r.GetServer()); err != nil {
		return nil, err
	}
	end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var content bytes.Buffer
	switch r.GetItem() {
	case diagnosispb.Item_METRICS:
		err = e.metrics(&content)
	case diagnosispb.Item_GOROUTINES:
		err = pprof.Lookup("goroutine").WriteTo(&content, 1)
	case diagnosispb.Item_HEAP:
		err = pprof.Lookup("heap").WriteTo(&content, 0)
	case diagnosispb.Item_PROCESSOR:
		err = profile(ctx, r.GetSeconds(), &content)
	case diagnosispb.Item_LOG:
		content.Write(e.config.Log.Text())
	default:
		return nil, status.Errorf(codes.InvalidArgument, "this server has no item %d", r.GetItem())
	}
	if err != nil {
		return nil, err
	}
	return pack(content.Bytes())
}

// pack compresses content. If the result is too long, only the end of the content is sent.
func pack(content []byte) (*diagnosispb.CollectResponse, error) {
	for r := new(diagnosispb.CollectResponse); ; r.Cut = true {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(content); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		if packed.Len() <= maxContent {
			r.Content = packed.Bytes()
			return r, nil
		}
		content = content[len(content)/2:]
	}
}

// metrics writes the metrics as text.
func (e *Examiner) metrics(to *bytes.Buffer) error {
	families, err := e.config.Metrics.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(to, f); err != nil {
			return err
		}
	}
	return nil
}

// profile measures processor time for some seconds. A process can have only one such measurement at
// a time.
func profile(ctx context.Context, seconds uint32, to *bytes.Buffer) error {
	if seconds == 0 {
		seconds = usualSeconds
	}
	if seconds > maxSeconds {
		return status.Errorf(codes.InvalidArgument, "processor time is measured for at most %d "+
			"seconds, and not for %d", maxSeconds, seconds)
	}
	if err := pprof.StartCPUProfile(to); err != nil {
		return status.Error(codes.Unavailable, "the processor time of this process is being measured "+
			"by another caller: try again later")
	}
	err := backoff.Sleep(ctx, time.Duration(seconds)*time.Second)
	pprof.StopCPUProfile() // before the return, so that the profile is complete
	return err
}
