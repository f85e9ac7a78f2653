// The benchmark of mpi_bench.c for KungFu: one such process a rank, started by kungfu-run.
//
//	kungfu-run -np 2 -H 127.0.0.1:2 kungfu_bench all_reduce --sizes 4,1024 --seconds 0.3
//
// The arguments, the method and the lines printed are those of mpi_bench.c; the method is defined in
// bench/README.md. KungFu has no reduce_scatter. It takes a send and a receive buffer; both are the
// same memory where the method says in place.
package main

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lsds/KungFu/srcs/go/kungfu/base"
	"github.com/lsds/KungFu/srcs/go/kungfu/peer"
	"github.com/lsds/KungFu/srcs/go/kungfu/session"
)

const (
	batchBelow, minBatch, maxBatch = 64 * 1024, 4, 1000
	minSamples, maxSamples         = 5, 20000
	batchSeconds, warmUpShare      = 0.002, 0.2
	period                         = 251
)

var sess *session.Session

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kungfu_bench:", err)
		os.Exit(1)
	}
}

func value(rank, i int) float32 { return float32((rank + 1) * (i%period + 1)) }

func sum(i int) float32 { return float32(sess.Size() * (sess.Size() + 1) / 2 * (i%period + 1)) }

func reduce(name string, vector *base.Vector, op base.OP) {
	must(sess.AllReduce(base.Workspace{SendBuf: vector, RecvBuf: vector, OP: op, Name: name}))
}

// agreed gives rank 0's number to every rank; its clock alone decides how long to go on.
func agreed(number int) int {
	vector := base.NewVector(1, base.I32)
	if sess.Rank() == 0 {
		vector.AsI32()[0] = int32(number)
	}
	reduce("agreed", vector, base.SUM)
	return int(vector.AsI32()[0])
}

// work is one operation with its buffers.
type work struct {
	op      string
	bytes   int
	inputs  []*base.Vector
	results []*base.Vector
	fused   *base.Vector
}

func newWork(op string, bytes int, counts []int) *work {
	w := &work{op: op, bytes: bytes}
	total := 0
	for _, count := range counts {
		w.inputs = append(w.inputs, base.NewVector(count, base.F32))
		total += count
	}
	w.results = w.inputs
	if op == "all_gather" {
		w.results = []*base.Vector{base.NewVector(total*sess.Size(), base.F32)}
	}
	if op == "list_fused" {
		w.fused = base.NewVector(total, base.F32)
	}
	return w
}

func (w *work) run() {
	switch w.op {
	case "all_reduce":
		reduce(w.op, w.inputs[0], base.SUM)
	case "broadcast":
		must(sess.Broadcast(base.Workspace{SendBuf: w.inputs[0], RecvBuf: w.inputs[0], Name: w.op}))
	case "all_gather":
		must(sess.AllGather(base.Workspace{SendBuf: w.inputs[0], RecvBuf: w.results[0], Name: w.op}))
	case "barrier":
		must(sess.Barrier())
	case "list_each":
		for i, vector := range w.inputs {
			reduce(strconv.Itoa(i), vector, base.SUM)
		}
	case "list_batch":
		var group sync.WaitGroup
		for i, vector := range w.inputs {
			group.Add(1)
			go func() {
				defer group.Done()
				reduce(strconv.Itoa(i), vector, base.SUM)
			}()
		}
		group.Wait()
	case "list_fused":
		at := 0
		for _, vector := range w.inputs {
			at += copy(w.fused.Data[at:], vector.Data)
		}
		reduce(w.op, w.fused, base.SUM)
		at = 0
		for _, vector := range w.inputs {
			at += copy(vector.Data, w.fused.Data[at:])
		}
	}
}

// verified runs once on known data and compares every element; the same answer on every rank.
func (w *work) verified() bool {
	for index, vector := range w.inputs {
		for i := range vector.AsF32() {
			vector.AsF32()[i] = value(sess.Rank(), i+index)
			if w.op == "broadcast" && sess.Rank() != 0 {
				vector.AsF32()[i] = -1
			}
		}
	}
	w.run()
	bad := base.NewVector(1, base.I32)
	for index, vector := range w.results {
		for i, got := range vector.AsF32() {
			wanted := sum(i + index)
			switch w.op {
			case "broadcast":
				wanted = value(0, i)
			case "all_gather":
				wanted = value(i/w.inputs[0].Count, i%w.inputs[0].Count)
			}
			if got != wanted {
				bad.AsI32()[0] = 1
			}
		}
	}
	reduce("verified", bad, base.SUM)
	for _, vector := range w.inputs {
		clear(vector.Data)
	}
	return bad.AsI32()[0] == 0
}

func (w *work) batchTime(batch int) float64 {
	must(sess.Barrier())
	start := time.Now()
	for range batch {
		w.run()
	}
	return time.Since(start).Seconds() / float64(batch)
}

func (w *work) measure(seconds float64) {
	good, fastest, batch := w.verified(), 1e9, 1
	start := time.Now()
	for warm := 0; ; warm++ {
		on := 0
		if warm < 2 || (warm < 1000 && time.Since(start).Seconds() < warmUpShare*seconds) {
			on = 1
		}
		if agreed(on) == 0 {
			break
		}
		fastest = min(fastest, w.batchTime(1))
	}
	if !strings.HasPrefix(w.op, "list") && w.bytes < batchBelow {
		batch = agreed(min(max(int(batchSeconds/max(fastest, 1e-8)), minBatch), maxBatch))
	}

	var mine []float64
	for start = time.Now(); ; {
		spent, each, more := time.Since(start).Seconds(), fastest*float64(batch), 0
		if len(mine) > 0 {
			each = spent / float64(len(mine))
		}
		if spent < seconds {
			more = int(0.1*seconds/each) + 1
		} else if len(mine) < minSamples && spent < 4*seconds {
			more = 1
		}
		if more = agreed(min(more, maxSamples-len(mine))); more == 0 {
			break
		}
		for range more {
			mine = append(mine, w.batchTime(batch))
		}
	}
	most := base.NewVector(len(mine), base.F32)
	for i, second := range mine {
		most.AsF32()[i] = float32(1e6 * second)
	}
	reduce("most", most, base.MAX)
	good = w.verified() && good

	if sess.Rank() == 0 {
		us, check := most.AsF32(), "ok"
		sort.Slice(us, func(i, j int) bool { return us[i] < us[j] })
		if !good {
			check = "failed"
		}
		fmt.Printf(`{"op": "%s", "ranks": %d, "bytes": %d, "median_us": %.3f, "min_us": %.3f, `+
			`"p90_us": %.3f, "iterations": %d, "batch": %d, "check": "%s"}`+"\n",
			w.op, sess.Size(), w.bytes, us[len(us)/2], us[0], us[len(us)*9/10], len(us), batch, check)
	}
}

func numbers(text string) (list []int) {
	for _, word := range strings.Split(text, ",") {
		number, err := strconv.Atoi(word)
		must(err)
		list = append(list, number)
	}
	return list
}

func main() {
	if len(os.Args) < 2 {
		must(fmt.Errorf("usage: kungfu_bench OP [--sizes a,b] [--counts a,b] [--seconds S]"))
	}
	op, flags := os.Args[1], flag.NewFlagSet("kungfu_bench", flag.ExitOnError)
	sizes, counts := flags.String("sizes", "4", ""), flags.String("counts", "", "")
	seconds := flags.Float64("seconds", 0.3, "")
	must(flags.Parse(os.Args[2:]))

	self, err := peer.New()
	must(err)
	must(self.Start())
	defer self.Close()
	sess = self.CurrentSession()
	switch {
	case strings.HasPrefix(op, "list"):
		list, total := numbers(*counts), 0
		for _, count := range list {
			total += count
		}
		newWork(op, 4*total, list).measure(*seconds)
	case op == "barrier":
		newWork(op, 0, nil).measure(*seconds)
	default:
		for _, size := range numbers(*sizes) {
			newWork(op, size, []int{size / 4}).measure(*seconds)
		}
	}
}
