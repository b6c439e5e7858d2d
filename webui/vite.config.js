import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { onePage } from './tools/one_page.js';

// `npm run dev` serves the page and passes the interface on to a running `quipu serve`.
const server = process.env.QUIPU_SERVER ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [svelte(), onePage()],
  build: { target: 'es2022', cssCodeSplit: false, modulePreload: false, reportCompressedSize: false },
  server: {
    proxy: {
      '/v1': {
        target: server,
        // The server refuses foreign origins, and this page's is one.
        configure: (proxy) => proxy.on('proxyReq', (request) => request.removeHeader('origin')),
      },
    },
  },
});
