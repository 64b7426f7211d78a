// Command clientgo is the yardstick of the benchmarks: a shared informer on Pods as client-go users write it, fed with
// JSON by the server that also feeds the Python caches. It prints one line of JSON and ends.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type report struct {
	SyncSeconds   float64 `json:"sync_seconds"`
	SyncCPU       float64 `json:"sync_cpu"`
	EventsSeconds float64 `json:"events_seconds"`
	EventsCPU     float64 `json:"events_cpu"`
	Events        int     `json:"events"`
	HeapBytes     uint64  `json:"heap_bytes"`
	PeakRSS       int64   `json:"peak_rss"`
	GoVersion     string  `json:"go"`
	CachedObjects int     `json:"objects"`
}

func main() {
	server := flag.String("server", "", "address of the API server")
	pods := flag.Int("pods", 0, "objects to expect in the first list")
	events := flag.Int("events", 0, "updates to wait for after that")
	strip := flag.Bool("strip", false, "drop managed fields before caching, as operators do with a transform")
	flag.Parse()
	result, err := run(*server, *pods, *events, *strip)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clientgo:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

func run(server string, pods, events int, strip bool) (report, error) {
	before := heap()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:          server,
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	})
	if err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	options := []informers.SharedInformerOption{}
	if strip {
		options = append(options, informers.WithTransform(withoutManagedFields))
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	informer := factory.Core().V1().Pods().Informer()

	var seen atomic.Int64
	var firstAt time.Time
	var firstCPU float64
	done := make(chan struct{})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, current any) {
			_ = current.(*corev1.Pod)
			switch seen.Add(1) {
			case 1:
				firstAt, firstCPU = time.Now(), cpu()
			case int64(events):
				close(done)
			}
		},
	})
	if err != nil {
		return report{}, err
	}
	started, startCPU := time.Now(), cpu()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return report{}, fmt.Errorf("the cache was not filled")
	}
	result := report{SyncSeconds: time.Since(started).Seconds(), SyncCPU: cpu() - startCPU, GoVersion: runtime.Version()}
	if got := len(informer.GetStore().ListKeys()); got != pods {
		return report{}, fmt.Errorf("the cache holds %d objects, not %d", got, pods)
	}
	result.HeapBytes = heap() - before
	if events > 1 {
		select {
		case <-done:
		case <-time.After(5 * time.Minute):
			return report{}, fmt.Errorf("%d of %d updates after five minutes", seen.Load(), events)
		}
		result.EventsSeconds, result.EventsCPU, result.Events = time.Since(firstAt).Seconds(), cpu()-firstCPU, events-1
	}
	result.CachedObjects = len(informer.GetStore().ListKeys())
	result.PeakRSS = usage().Maxrss * 1024
	return result, nil
}

func withoutManagedFields(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return object, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func usage() syscall.Rusage {
	var result syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &result)
	return result
}

func cpu() float64 {
	now := usage()
	return float64(now.Utime.Sec+now.Stime.Sec) + float64(now.Utime.Usec+now.Stime.Usec)/1e6
}
