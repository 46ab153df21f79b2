// Network-policies enforces the cluster's NetworkPolicies with iptables and ipset: kube-router's controller for them alone,
// without its router, its service proxy and their long list of dependencies.
package main

import (
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4 = true
	flag.StringVar(&config.Kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&config.HostnameOverride, "hostname-override", "", "the name of this node")
	services := flag.String("service-cluster-ip-range", "", "the addresses of Services")
	flag.Parse()
	config.ClusterIPCIDRs = []string{*services}
	if err := enforce(config); err != nil {
		klog.Fatal(err)
	}
}

func enforce(config *options.KubeRouterConfig) error {
	client, err := connect(config.Kubeconfig)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	run(factory, controller)
	return nil
}

func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func run(factory informers.SharedInformerFactory, controller *netpol.NetworkPolicyController) {
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	// The controller reports to a health check that nobody asks here; unread reports would block it.
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range heartbeats {
		}
	}()

	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(heartbeats, stop, &running)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	close(stop)
	running.Wait()
}
